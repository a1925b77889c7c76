package callins

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A carrier copies one stream in one direction.
type carrier struct {
	from, to *os.File   // non-blocking
	ours     *os.File   // from or to, whichever is the command's
	theirs   *os.File   // the command's end of its pipe, closed once the command has its own; nil for a terminal
	terminal bool       // ours is a terminal's master
	buffers  *sync.Pool // of *[carrySize]byte

	calls  atomic.Int64  // odd while a system call is under way that a process can hold up
	ending chan struct{} // closed by end
	ended  chan struct{} // closed when the last byte has been passed on, and the caller's pipe is closed
	gone   chan struct{} // closed when the command's stream is closed, too
}

// own gives the carrier its end of the command's stream.
func (c *carrier) own(f *os.File) {
	c.ours = f
	if c.to == nil {
		c.to = f
	} else {
		c.from = f
	}
}

// end has the carrier end when it has passed on what is there. It is called once.
func (c *carrier) end() {
	close(c.ending)
	// Errors say that the carrier has ended already.
	_ = c.from.SetReadDeadline(time.Unix(1, 0))
	if c.ours == c.to {
		_ = c.to.SetWriteDeadline(time.Unix(1, 0))
	}
}

// await waits for the end of an output's carrier. If a process has locked the command's pipe, or the caller does not
// read until moments after ctx's end, await closes the caller's pipe.
func (c *carrier) await(ctx context.Context) error {
	for before := int64(0); ; {
		select {
		case <-c.ended:
			return nil
		case <-time.After(heldLimit):
		}
		now := c.calls.Load()
		isLocked := now%2 == 1 && now == before
		before = now
		switch {
		case isLocked && !has(c.from, unix.POLLIN):
			return c.to.Close() // nothing is lost
		case isLocked:
			return errors.Join(errLocked, c.to.Close())
		case ctx.Err() != nil:
			return errors.Join(errUnread, c.to.Close())
		}
	}
}

// carry copies until either end is closed, or until end.
func (c *carrier) carry() {
	defer close(c.gone)
	c.touch(func() { c.theirs.Close() }) // nil is none
	go c.watch()
	c.copy()
	callers := c.to
	if c.ours == c.to {
		callers = c.from
	}
	callers.Close()
	close(c.ended)
	c.touch(func() { c.ours.Close() })
}

// touch makes a call that a process can hold up.
func (c *carrier) touch(call func()) {
	c.calls.Add(1)
	call()
	c.calls.Add(1)
}

// watch ends the carrier once a pipe has no reader: the writer is to learn it before it writes.
func (c *carrier) watch() {
	if raw, err := c.to.SyscallConn(); err == nil {
		_ = raw.Read(func(uintptr) bool { return c.hasNoReader() })
		_ = c.from.SetReadDeadline(time.Unix(1, 0))
	}
}

// copy copies until the end of the stream, or until to has no reader.
func (c *carrier) copy() {
	last, left := byte('\n'), maxLeft
	for left > 0 {
		ended := c.awaitReadable()
		if ended && c.hasNoReader() {
			return
		}
		text, n, err := c.read()
		if n > 0 {
			last = text[n-1]
			_, err = c.to.Write(text[:n])
		}
		c.buffers.Put(text)
		switch {
		case err == nil && n > 0:
			if ended {
				left -= n
			}
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && !ended:
		case errors.Is(err, unix.EIO) && c.ours == c.from && !ended:
			c.pause()
		default:
			if err == nil && c.terminal && c.ours == c.to {
				typeEnd(c.to, last)
			}
			return
		}
	}
}

// hasNoReader reports whether a pipe that is written has no reader any more.
func (c *carrier) hasNoReader() bool {
	return (!c.terminal || c.ours == c.from) && has(c.to, 0)
}

// awaitReadable returns when from can be read, or with true when the carrier is to end.
func (c *carrier) awaitReadable() (ended bool) {
	raw, err := c.from.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool { return hasEvent(fd, unix.POLLIN) })
	}
	return err != nil
}

// read makes one read of from. It returns 0 and no error at the end, and EAGAIN if there is nothing. A pipe that a
// process has locked and that is empty is not touched.
func (c *carrier) read() (text *[carrySize]byte, n int, err error) {
	text = c.buffers.Get().(*[carrySize]byte)
	closed := withDescriptor(c.from, func(fd int) error {
		if !hasEvent(uintptr(fd), unix.POLLIN) {
			err = unix.EAGAIN
			return nil
		}
		c.touch(func() { n, err = unix.Read(fd, text[:]) })
		return nil
	})
	return text, n, errors.Join(err, closed)
}

// pause waits for a terminal that no process has open.
func (c *carrier) pause() {
	select {
	case <-c.ending:
	case <-time.After(reopenPause):
	}
}

// hasEvent reports whether a descriptor has one of the events, or an error, or no other end. poll(2) takes no lock of a
// pipe.
func hasEvent(fd uintptr, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// has is hasEvent of a file; false if it is closed.
func has(f *os.File, events int16) (is bool) {
	_ = withDescriptor(f, func(fd int) error {
		is = hasEvent(uintptr(fd), events)
		return nil
	})
	return is
}
