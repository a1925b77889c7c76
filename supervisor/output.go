package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// readSize is the most that one read takes, and with it one log record's bytes.
const readSize = 64 << 10

// outputPipe is the size of the pipes that apps write to. Four times the
// kernel's default lets an app that writes 4 KiB at a time go on while its
// output is logged: about twice the throughput (BenchmarkOutput), and more than
// this gains nothing. The kernel takes the memory only when it is filled.
const outputPipe = 256 << 10

// A pipe with a waiting reader wakes it at every write, which costs an app that
// writes single lines a third of its speed. So a reader that has found something
// comes back by itself, after firstPause and, as long as nothing more comes, after
// twice the pause; only after lastPause it waits in the poller. The pause also lets
// small pieces come together: a reader that came back for each would cost both sides
// a switch of tasks. The pipe holds what the fastest writer makes in several
// firstPauses.
const (
	firstPause = 20 * time.Microsecond
	lastPause  = time.Millisecond
	smallRead  = 16 << 10 // a larger one is followed by the next at once
)

// drainLimit bounds what is read after the processes of a run have ended, so
// that a foreign process that got hold of the pipe cannot go on for ever. No pipe
// or terminal holds more.
const drainLimit = 4 << 20

// bufferPool lends the buffers of reads. Between reads none is held, so an
// app that says nothing costs no buffer.
type bufferPool struct{ pool sync.Pool }

func newBufferPool() *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { return new([readSize]byte) }}}
}

func (b *bufferPool) get() *[readSize]byte    { return b.pool.Get().(*[readSize]byte) }
func (b *bufferPool) put(buf *[readSize]byte) { b.pool.Put(buf) }

// capture reads one pipe or terminal of a run until its end.
type capture struct {
	fd      int // non-blocking; the reading goroutine closes it
	buffers *bufferPool
	emit    func([]byte) // gets each read's bytes, and keeps none
	done    chan struct{}

	poller   *poller
	finished chan struct{} // closed by finish
}

// startCapture reads fd, which must be non-blocking, and takes it over.
func startCapture(fd int, p *poller, buffers *bufferPool, emit func([]byte)) *capture {
	c := &capture{fd: fd, poller: p, buffers: buffers, emit: emit, done: make(chan struct{}), finished: make(chan struct{})}
	go c.loop()
	return c
}

// loop reads until the end, or until the writers have ended and nothing is left.
func (c *capture) loop() {
	defer close(c.done)
	defer unix.Close(c.fd)
	total, pause := 0, firstPause
	for {
		finished := c.isFinished()
		n := c.read()
		switch {
		case n < 0, finished && (n == 0 || total > drainLimit):
			return
		case finished:
			total += n
		case n >= smallRead:
			pause = firstPause
		case n > 0:
			pause = firstPause
			sleep(pause)
		case pause < lastPause:
			sleep(pause)
			pause *= 2
		default:
			c.poller.wait(c.fd, c.finished)
			pause = firstPause
		}
	}
}

// sleep sleeps in the kernel: a timer of the runtime's would wake more threads
// than the pause saves. A signal may cut it short.
func sleep(d time.Duration) { _ = unix.Nanosleep(&unix.Timespec{Nsec: int64(d)}, nil) }

func (c *capture) isFinished() bool {
	select {
	case <-c.finished:
		return true
	default:
		return false
	}
}

// read makes one read. It returns the number of bytes, 0 when there are none
// now, and -1 at the end; a terminal whose other side is closed says EIO.
func (c *capture) read() int {
	buf := c.buffers.get()
	defer c.buffers.put(buf)
	n, err := unix.Read(c.fd, buf[:])
	for err == unix.EINTR {
		n, err = unix.Read(c.fd, buf[:])
	}
	switch {
	case n > 0:
		c.emit(buf[:n])
		return n
	case err == unix.EAGAIN:
		return 0
	default:
		return -1
	}
}

// finish takes what is left in the pipe and ends the reading. It is called
// when the processes that write have ended.
func (c *capture) finish() {
	close(c.finished)
	<-c.done
}

// openOutput makes a pipe: theirs is for a process, which expects its descriptors to
// block, ours for a capture.
func openOutput() (ours int, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		closeAll(fds[:])
		return -1, nil, fmt.Errorf("make pipe non-blocking: %w", err)
	}
	// Beyond the user's limit (pipe(7)) it stays as it is, and slower.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, outputPipe)
	return fds[0], os.NewFile(uintptr(fds[1]), "output"), nil
}

// pipe makes a pipe of which only our end is non-blocking; the other goes to
// a process, which expects its descriptors to block.
func pipe(ourWrite bool) (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	our, their := fds[0], fds[1]
	if ourWrite {
		our, their = their, our
	}
	if err := unix.SetNonblock(our, true); err != nil {
		closeAll(fds[:])
		return nil, nil, fmt.Errorf("make pipe non-blocking: %w", err)
	}
	return os.NewFile(uintptr(our), "pipe"), os.NewFile(uintptr(their), "pipe"), nil
}

// duplicate gives another descriptor of f, for a capture to take over.
func duplicate(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	inner := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(inner, err)
}

// nonBlocking gives another descriptor of f that waits in the Go runtime
// instead of in a thread, and closes f.
func nonBlocking(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		closeAll([]int{fd})
		return nil, fmt.Errorf("make %s non-blocking: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// logWriter writes to an app's log and reports its first error, since the app goes on
// without a log rather than not at all.
func logWriter(w io.Writer, report func(error)) func([]byte) {
	failed := false
	return func(chunk []byte) {
		if w == nil {
			return
		}
		_, err := w.Write(chunk)
		if err != nil && !failed {
			report(err)
		}
		failed = err != nil
	}
}
