package callins

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// between is the stdio of a command that has not asked for a terminal. A process that holds the
// caller's terminal can read what the caller types after the command has ended, so the command gets
// pipes instead. It gets the caller's other files as they are.
type between struct {
	stdio   [3]*os.File // the command's
	pipes   []*os.File  // the command's ends of the pipes, which are in stdio
	input   copying     // src is nil for none
	outputs []copying
}

// copying is a pipe and a stream of the caller, which is a terminal.
type copying struct{ dst, src *os.File }

// newBetween makes the pipes that the caller's streams need. The caller closes it.
func newBetween(s Streams) (b *between, err error) {
	b = &between{stdio: [3]*os.File{s.Stdin, s.Stdout, s.Stderr}}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if isTerminal(s.Stdin) {
		ours, err := b.replace(&b.stdio[0], 1)
		if err != nil {
			return b, err
		}
		b.input = copying{dst: ours, src: s.Stdin}
	}
	for i, f := range []*os.File{s.Stdout, s.Stderr} {
		switch {
		case !isTerminal(f):
		case i == 1 && sameFile(s.Stdout, s.Stderr):
			b.stdio[2] = b.stdio[1] // one pipe keeps the order of the lines
		default:
			ours, err := b.replace(&b.stdio[i+1], 0)
			if err != nil {
				return b, err
			}
			b.outputs = append(b.outputs, copying{dst: f, src: ours})
		}
	}
	return b, nil
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// sameFile reports whether both are one file, such as one terminal.
func sameFile(a, b *os.File) bool {
	first, errA := a.Stat()
	second, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(first, second)
}

// replace makes a pipe, puts the command's end of it into stream and returns the other end, which is
// number end as in pipe(2). Only the returned end is non-blocking: few programs expect that of their
// stdio.
func (b *between) replace(stream **os.File, end int) (ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1-end]), "pipe")
	b.pipes = append(b.pipes, theirs)
	*stream = theirs
	ours, err = pollable(os.NewFile(uintptr(fds[end]), "pipe"))
	return ours, err
}

// passed closes the command's ends here, because a pipe ends when the last copy of its end is closed.
func (b *between) passed() {
	for _, f := range b.pipes {
		f.Close()
	}
	b.pipes = nil
}

// close closes all pipes.
func (b *between) close() {
	b.passed()
	for _, c := range b.outputs {
		c.src.Close()
	}
	if b.input.dst != nil {
		b.input.dst.Close()
	}
}

// start begins to copy. It calls failed after an error of an output. The caller calls finish when the
// command has ended: finish returns the outputs' errors, once all that the command has written has
// been copied.
func (b *between) start(failed func()) (finish func() error) {
	if b.input.src != nil {
		signal.Ignore(unix.SIGTTIN) // see typed
		go func() {
			defer b.input.dst.Close() // the end of the command's input
			_, _ = io.Copy(b.input.dst, typed{b.input.src})
		}()
	}
	var outputs []*output
	for _, c := range b.outputs {
		outputs = append(outputs, startOutput(c.dst, c.src, failed))
	}
	return func() error { return finishAll(outputs) }
}

// typed reads what the caller types.
type typed struct{ terminal *os.File }

// backgroundPause is how long a call-in in the background waits before it tries to read again.
const backgroundPause = 200 * time.Millisecond

// Read implements io.Reader. The kernel stops a background process that reads its terminal, and a
// stopped call-in copies no output. If the process ignores SIGTTIN, the read fails with EIO instead
// (termios(3)); then Read waits until the process is in the foreground.
func (t typed) Read(p []byte) (int, error) {
	for {
		n, err := t.terminal.Read(p)
		if !errors.Is(err, unix.EIO) || !t.inBackground() {
			return n, err
		}
		time.Sleep(backgroundPause)
	}
}

// inBackground is false also if the terminal is gone.
func (t typed) inBackground() bool {
	foreground, err := unix.IoctlGetInt(int(t.terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground != unix.Getpgrp()
}
