package callins

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// between is what the supervisor gets for the stdio of a command: pipes, between which and the command it copies
// (carriers), while the call-in copies between them and the caller's streams. A process reopens by /proc/self/fd what
// it holds, with other access: it would write into the script that the caller's shell reads, truncate the caller's log,
// or read what the caller types after the command has ended. The caller's null device stands for that of the command's
// app; a command with a terminal has none, and no stderr.
type between struct {
	copies
	stdio    []*os.File // what the supervisor gets
	theirs   []*os.File // the supervisor's ends of the pipes, which are in stdio
	terminal bool
}

// newBetween makes the pipes for the caller's streams.
func newBetween(s Streams, terminal bool) (*between, error) {
	b := &between{terminal: terminal}
	err := b.pipeInput(s.Stdin)
	if err == nil {
		err = b.pipeOutput(s.Stdout)
	}
	switch {
	case err != nil || terminal:
	case sameFile(s.Stdout, s.Stderr):
		b.stdio = append(b.stdio, b.stdio[1]) // one pipe keeps the order of what is written
	default:
		err = b.pipeOutput(s.Stderr)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *between) pipeInput(stdin *os.File) error {
	if isNull(stdin) && !b.terminal {
		b.stdio = append(b.stdio, stdin)
		return nil
	}
	theirs, ours, err := b.pipe()
	if err != nil {
		return err
	}
	b.pass(theirs)
	if !isReadable(stdin) {
		return ours.Close() // the end of the command's input
	}
	b.input, err = newInput(ours, stdin)
	return err
}

func (b *between) pipeOutput(f *os.File) error {
	if isNull(f) && !b.terminal {
		b.stdio = append(b.stdio, f)
		return nil
	}
	ours, theirs, err := b.pipe()
	if err != nil {
		return err
	}
	b.pass(theirs)
	return b.addOutput(f, ours)
}

// pass has the supervisor get an end of a pipe.
func (b *between) pass(end *os.File) {
	b.stdio, b.theirs = append(b.stdio, end), append(b.theirs, end)
}

// pipe makes a pipe with blocking ends. The supervisor makes its end non-blocking.
func (b *between) pipe() (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// passed closes the supervisor's ends here, because a pipe ends when the last copy of its end is closed.
func (b *between) passed() {
	for _, f := range b.theirs {
		f.Close()
	}
	b.theirs = nil
}

// close frees a between that has not been started.
func (b *between) close() {
	b.passed()
	b.copies.close()
}

// finish is called once, when the command has ended. It returns the errors of the copies, once all that the command
// has written has been copied. A reader that has gone is none: the command has had its SIGPIPE.
func (b *between) finish() error {
	var all []error
	if b.input != nil {
		b.input.end() // what comes now stays the caller's
		select {
		case err := <-b.input.done:
			all = append(all, err)
		default: // it waits for the caller, who will not be read
		}
	}
	for _, c := range b.outputs {
		if err := c.finish(); !errors.Is(err, unix.EPIPE) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// sameFile reports whether both are one file, such as one pipe or terminal. Two opens of a regular file are one
// file, too: otherwise the streams would overwrite each other there.
func sameFile(a, b *os.File) bool {
	first, errA := a.Stat()
	second, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(first, second)
}

// isNull reports whether f is a null device.
func isNull(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// isReadable reports whether f can be read at all: a folder, or a file that is open for writing or as a path only, is
// an input without a byte.
func isReadable(f *os.File) bool {
	var st unix.Stat_t
	mode, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || mode&unix.O_ACCMODE == unix.O_WRONLY || mode&unix.O_PATH != 0 {
		return false
	}
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR
}
