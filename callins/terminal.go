package callins

import (
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// The size of a terminal if its caller has none.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// terminalOf returns the first of the caller's stdio that is a terminal, or nil.
func terminalOf(s Streams) *os.File {
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if term.IsTerminal(int(f.Fd())) {
			return f
		}
	}
	return nil
}

// callerSize returns the size of the caller's terminal in characters.
func callerSize(s Streams) (width, height uint16) {
	f := terminalOf(s)
	if f == nil {
		return defaultWidth, defaultHeight
	}
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w == 0 || h == 0 {
		return defaultWidth, defaultHeight
	}
	return uint16(w), uint16(h)
}

// rawMode makes the caller's stdin, if it is a terminal, pass every byte on as it is
// typed, until restore is called.
func rawMode(stdin *os.File) (restore func(), err error) {
	fd := int(stdin.Fd())
	if !term.IsTerminal(fd) {
		return func() {}, nil
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(fd, state) }, nil // it fails only for a terminal that has gone
}

// typeEnd types the end of file of a terminal, its end-of-file character. Typed at the start of a line it ends the
// input; elsewhere it only flushes the line, so there it is typed twice. last is what was typed before.
func typeEnd(master *os.File, last byte) {
	end := []byte{0x04} // ^D
	// If the mode cannot be read, the command has just ended.
	_ = withDescriptor(master, func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			end[0] = mode.Cc[unix.VEOF]
		}
		return err
	})
	if last != '\n' && last != '\r' {
		end = append(end, end[0])
	}
	// The command may have ended meanwhile; its exit is on its way.
	_, _ = master.Write(end)
}
