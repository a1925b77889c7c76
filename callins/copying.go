package callins

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLeft is the most that is read from a pipe or terminal after its writer has ended.
	// It is more than the kernel keeps in either (pipe(7), /proc/sys/fs/pipe-max-size), so that
	// nothing is lost, and it is a bound, because a background process may write on.
	maxLeft = 2 << 20
	// copySize is the most that one read or splice(2) takes.
	copySize = 1 << 20
	// plainSize is copySize where splice(2) is not used.
	plainSize = 64 << 10
	// pipeSize is the least size of pipes that a copying widens.
	pipeSize = 256 << 10
	// backgroundPause is how long a call-in in the background waits before it tries to read its terminal again.
	backgroundPause = 200 * time.Millisecond
)

// errRead marks an error of a copying's source.
var errRead = errors.New("read")

// copying carries the bytes of one stream, on a goroutine, between a pipe, of which only the supervisor has the other
// end, and a stream of the caller. Other processes share the caller's open file description, so its flags
// stay as they are: a copying waits for it in poll(2), or in the write itself.
type copying struct {
	what     string // the verb phrase of its errors
	dst, src *os.File
	ours     *os.File // src or dst; the goroutine closes it
	over     *os.File // an eventfd that is readable once the copying is to end; the goroutine closes it
	left     int      // how many bytes may follow then: none of an input
	plain    []byte   // the buffer where splice(2) is not used
	// pause says how long to wait after src has returned EIO; 0 means that src has ended. It is nil for a src whose EIO
	// is an error.
	pause func() time.Duration
	done  chan error // how the goroutine has ended; EPIPE means that dst has no reader any more
}

// newOutput makes the copying of a pipe to one of the caller's streams. It takes src over, also after an error.
func newOutput(dst, src *os.File) (*copying, error) {
	c := &copying{what: "write output", dst: dst, src: src, ours: src, left: maxLeft}
	widen(src, dst)
	return c, c.open()
}

// newInput makes the copying of one of the caller's streams to a pipe. It takes dst over, also after an error.
func newInput(dst, src *os.File) (*copying, error) {
	c := &copying{what: "read stdin", dst: dst, src: src, ours: dst}
	info, err := src.Stat()
	if isTerminal(src) {
		signal.Ignore(unix.SIGTTIN) // see pauseOf
		c.pause = func() time.Duration { return pauseOf(src) }
	}
	// splice(2) puts the pages of a regular file into the pipe, where they would be in reach of the command.
	if c.pause != nil || err != nil || info.Mode().IsRegular() {
		c.plain = make([]byte, plainSize)
	} else {
		widen(src) // not dst, which bounds with two more buffers what is read ahead
	}
	return c, c.open()
}

// widen gives smaller pipes the size pipeSize: between those of the kernel's size, copying takes up to twice as long.
// That the caller's pipe holds more changes nothing else for it. Above the user's limit (pipe(7)), a pipe keeps its
// size.
func widen(files ...*os.File) {
	for _, f := range files {
		if size, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0); err == nil && size < pipeSize {
			_, _ = unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, pipeSize)
		}
	}
}

// pauseOf is the pause of what the caller types. The kernel stops a background process that reads its terminal, and a
// stopped call-in copies no output. If the process ignores SIGTTIN, the read fails with EIO instead (termios(3));
// then the copying tries again until the process is in the foreground, which it may be by now. A terminal that is
// gone has no foreground.
func pauseOf(terminal *os.File) time.Duration {
	if _, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP); err != nil {
		return 0
	}
	return backgroundPause
}

func (c *copying) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		c.ours.Close()
		return fmt.Errorf("make eventfd: %w", err)
	}
	c.over, c.done = os.NewFile(uintptr(fd), "eventfd"), make(chan error, 1)
	return nil
}

// close frees a copying that has not been started.
func (c *copying) close() {
	c.ours.Close()
	c.over.Close()
}

// start begins to copy. After an error it calls failed, once.
func (c *copying) start(failed func()) {
	go func() {
		err := c.copy()
		input := c.ours == c.dst
		if input && errors.Is(err, unix.EPIPE) {
			err = nil // the process reads no more input
		}
		if input {
			c.done <- err // before the end of its input ends the process
		}
		c.close() // the process at the other end of our pipe sees the end, too
		if err != nil {
			failed()
		}
		if !input {
			c.done <- err
		}
	}()
}

// end has the copying end once what was written before has been copied, without waiting for an end of file.
// An input that waits for the caller may never end.
func (c *copying) end() {
	_, _ = c.over.Write([]byte{7: 1}) // it fails only if the copying has ended already
}

// finish calls end, and returns how the copying has ended. It is called once, for an output.
func (c *copying) finish() error {
	c.end()
	return <-c.done
}

// copy returns nil at the end of the stream.
func (c *copying) copy() error {
	for more := true; more; {
		ready, ended, err := c.wait()
		switch {
		case err == nil && ready && (c.left > 0 || !ended):
			more, err = c.step(ended)
		case ended:
			more = false
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

// wait waits until src can be read or is at its end, or until the copying is to end. It returns EPIPE once dst has no
// reader.
func (c *copying) wait() (ready, ended bool, err error) {
	// In this order: an ended writer has written all before.
	fds := []unix.PollFd{polled(c.over, unix.POLLIN), polled(c.src, unix.POLLIN), polled(c.dst, 0)}
	if err := poll(fds, -1); err != nil {
		return false, false, err
	}
	if fds[2].Revents != 0 {
		return false, false, unix.EPIPE
	}
	return fds[1].Revents != 0, fds[0].Revents != 0, nil
}

// move makes one splice(2), or one read and a write of its bytes. It returns 0 and no error at the end of src. It may
// return EAGAIN if dst has no room.
func (c *copying) move() (int, error) {
	if c.plain == nil {
		n, err := unix.Splice(int(c.src.Fd()), nil, int(c.dst.Fd()), nil, copySize, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if !errors.Is(err, unix.EINVAL) {
			return int(n), err
		}
		c.plain = make([]byte, plainSize) // one of the two cannot be spliced, such as a file that is open for append
	}
	n, err := unix.Read(int(c.src.Fd()), c.plain)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errRead, err)
	}
	return n, writeAll(c.dst, c.plain[:n])
}

// step makes a move and waits if another one needs it. It returns false at the end of src.
func (c *copying) step(ended bool) (more bool, _ error) {
	n, err := c.move()
	if ended {
		c.left -= n
	}
	switch {
	case err == nil:
		return n > 0, nil
	case errors.Is(err, unix.EINTR):
		return true, nil
	case errors.Is(err, unix.EAGAIN):
		return true, c.awaitRoom()
	case c.pause != nil && errors.Is(err, errRead) && errors.Is(err, unix.EIO):
		pause := c.pause()
		if ended || pause == 0 {
			return false, nil
		}
		return true, poll([]unix.PollFd{polled(c.over, unix.POLLIN)}, pause)
	}
	return false, err
}

// awaitRoom waits until dst can be written or has no reader. An input's waits only until the copying is to end.
func (c *copying) awaitRoom() error {
	fds := []unix.PollFd{polled(c.dst, unix.POLLOUT), polled(c.over, unix.POLLIN)}
	if c.ours == c.src {
		fds = fds[:1]
	}
	return poll(fds, -1)
}

// writeAll writes text to a file in the mode that its caller has chosen.
func writeAll(dst *os.File, text []byte) error {
	for len(text) > 0 {
		n, err := unix.Write(int(dst.Fd()), text)
		switch {
		case err == nil:
			text = text[n:]
		case errors.Is(err, unix.EAGAIN):
			err = poll([]unix.PollFd{polled(dst, unix.POLLOUT)}, -1)
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

func polled(f *os.File, events int16) unix.PollFd {
	return unix.PollFd{Fd: int32(f.Fd()), Events: events}
}

// poll waits for one of the events, at most as long as limit, which is negative for no limit. A signal ends the wait.
func poll(fds []unix.PollFd, limit time.Duration) error {
	ms := -1
	if limit >= 0 {
		ms = int(limit.Milliseconds())
	}
	if _, err := unix.Poll(fds, ms); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	return nil
}

// finishAll finishes outputs, and returns their errors.
func finishAll(outputs []*copying) error {
	var all []error
	for _, o := range outputs {
		all = append(all, o.finish())
	}
	return errors.Join(all...)
}

// awaitOutput calls finish after the end of what writes the outputs, and returns its error. A signal of the
// caller, unless it is a change of the window, ends the wait for a reader that does not read; then code is 128+N. So
// it is for a reader that has gone, as if SIGPIPE had ended the call-in. finish may be under way still then.
func awaitOutput(finish func() error, signals <-chan os.Signal) (code int, err error) {
	finished := make(chan error, 1)
	go func() { finished <- finish() }()
	for {
		select {
		case err := <-finished:
			if errors.Is(err, unix.EPIPE) {
				return 128 + int(unix.SIGPIPE), nil
			}
			return 0, err
		case sig := <-signals:
			if sig != unix.SIGWINCH {
				return 128 + int(sig.(syscall.Signal)), nil
			}
		}
	}
}

// copies are the copies between the streams of an app or a command and the caller's.
type copies struct {
	input   *copying // nil for none
	outputs []*copying
}

// addOutput adds the copying that newOutput makes.
func (c *copies) addOutput(dst, src *os.File) error {
	output, err := newOutput(dst, src)
	if err == nil {
		c.outputs = append(c.outputs, output)
	}
	return err
}

// close frees copies that have not been started.
func (c *copies) close() {
	for _, output := range c.outputs {
		output.close()
	}
	if c.input != nil {
		c.input.close()
	}
}

// start begins to copy. When an output cannot be written, it calls failed. Neither the caller's end of file nor a
// program that closes its stdin is a failure, and the former ends an app's input only if that is one caller's.
func (c *copies) start(failed func()) {
	for _, output := range c.outputs {
		output.start(failed)
	}
	if c.input != nil {
		c.input.start(func() {})
	}
}
