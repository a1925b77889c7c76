package callins

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxLeft is the most that is read from a pipe or terminal after its writer has ended.
// It is more than the kernel keeps in either (pipe(7), /proc/sys/fs/pipe-max-size), so that
// nothing is lost, and it is a bound, because a background process may write on.
const maxLeft = 2 << 20

// reopenPause is the time between two reads of a terminal that no process holds.
const reopenPause = 50 * time.Millisecond

// output copies a pipe or a terminal's master to one of the caller's streams.
type output struct {
	dst, src *os.File
	over     chan struct{} // closed by finish
	done     chan error
}

// startOutput begins to copy src, which must be pollable. After an error of dst
// it calls failed, once.
func startOutput(dst, src *os.File, failed func()) *output {
	o := &output{dst: dst, src: src, over: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		err := o.copy()
		if err != nil {
			failed()
		}
		o.done <- err
	}()
	return o
}

// finish is called after the writer has ended: it returns once everything that was written
// before has been copied, without waiting for an end of file. It is called once.
func (o *output) finish() error {
	// It fails only for a closed file, which also wakes the copy.
	_ = o.src.SetReadDeadline(time.Unix(1, 0))
	close(o.over)
	return <-o.done
}

// awaitOutput calls finish, which finishes outputs, and returns its error. A signal of the caller, unless it is
// a change of the window, ends the wait for a reader that does not read; then code is 128+N.
func awaitOutput(finish func() error, signals <-chan os.Signal) (code int, err error) {
	finished := make(chan error, 1)
	go func() { finished <- finish() }()
	for {
		select {
		case err := <-finished:
			return 0, err
		case sig := <-signals:
			if sig != unix.SIGWINCH {
				return 128 + int(sig.(syscall.Signal)), nil
			}
		}
	}
}

func (o *output) copy() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := o.src.Read(buf)
		if n > 0 {
			if _, err := o.dst.Write(buf[:n]); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return o.drain(buf)
		case errors.Is(err, unix.EIO):
			// No process holds the terminal now. The command may open it again.
			select {
			case <-o.over:
			case <-time.After(reopenPause):
			}
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			return nil
		default:
			return fmt.Errorf("read output: %w", err)
		}
	}
}

// drain copies what is left. A read of a terminal's master first fetches the bytes that
// the kernel still has in flight (n_tty_read), so EAGAIN means that none are left.
func (o *output) drain(buf []byte) error {
	if err := o.src.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	raw, err := o.src.SyscallConn()
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	for left := maxLeft; left > 0; {
		n, err := readNow(raw, buf)
		if err != nil || n == 0 {
			return err
		}
		// Not within raw.Read, which would make Close wait for a reader that does not read.
		if _, err := o.dst.Write(buf[:n]); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		left -= n
	}
	return nil
}

// readNow makes one read that does not wait. It returns 0 when there is nothing: EAGAIN, EIO and end of
// file mean the same here.
func readNow(raw syscall.RawConn, buf []byte) (n int, err error) {
	err = raw.Read(func(fd uintptr) bool {
		var failed error
		n, failed = unix.Read(int(fd), buf)
		for errors.Is(failed, unix.EINTR) {
			n, failed = unix.Read(int(fd), buf)
		}
		return true
	})
	return max(n, 0), err
}

// pollable replaces f by a file on the same open file description, in
// non-blocking mode, on which deadlines work. f is closed.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make descriptor non-blocking: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
