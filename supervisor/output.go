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

// A read of less than smallRead means that the app writes in small pieces. If it
// goes on, a reader that comes back for each piece costs both of them a switch
// of tasks a piece; one that comes back gatherTime later finds many. The pipe holds
// what the fastest writer makes in several times that.
const (
	smallRead  = 16 << 10
	gatherTime = 100 * time.Microsecond
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
	src     *os.File // non-blocking
	buffers *bufferPool
	emit    func([]byte) // gets each read's bytes, and keeps none
	done    chan struct{}
	ended   bool // end of file or an error was read; the reading goroutine's
}

func startCapture(src *os.File, buffers *bufferPool, emit func([]byte)) *capture {
	c := &capture{src: src, buffers: buffers, emit: emit, done: make(chan struct{})}
	go c.loop()
	return c
}

func (c *capture) loop() {
	defer close(c.done)
	raw, err := c.src.SyscallConn()
	if err != nil {
		return
	}
	for err == nil && !c.ended {
		var n int
		err = raw.Read(func(fd uintptr) bool {
			n = c.read(int(fd))
			return n != 0
		})
		if n > 0 && n < smallRead {
			gather()
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	// The writers have ended, so what is there now is all there is.
	_ = raw.Control(func(fd uintptr) {
		for total := 0; total < drainLimit && !c.ended; {
			n := c.read(int(fd))
			if n <= 0 {
				return
			}
			total += n
		}
	})
}

// gather lets some output come together. It sleeps in the kernel: a timer of the
// runtime's would wake more threads than it saves.
func gather() {
	_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(gatherTime)}, nil) // a signal may cut it short
}

// read makes one read. It returns the number of bytes, 0 when there are none
// now, and -1 at the end; a terminal whose other side is closed says EIO.
func (c *capture) read(fd int) int {
	buf := c.buffers.get()
	defer c.buffers.put(buf)
	n, err := unix.Read(fd, buf[:])
	for err == unix.EINTR {
		n, err = unix.Read(fd, buf[:])
	}
	switch {
	case n > 0:
		c.emit(buf[:n])
		return n
	case err == unix.EAGAIN:
		return 0
	default:
		c.ended = true
		return -1
	}
}

// finish takes what is left in the pipe and ends the reading. It is called
// when the processes that write have ended.
func (c *capture) finish() {
	// A file that knows no deadlines is not readable either: the loop is over.
	_ = c.src.SetReadDeadline(time.Unix(1, 0))
	<-c.done
	_ = c.src.Close()
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
