package output

import (
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// readSize is the most that one read takes, and with it one log record's bytes.
const readSize = 64 << 10

// A pipe with a waiting reader wakes it at every write, which costs an app that
// writes single lines a third of its speed. So a reader that has found something
// reads again by itself, after firstPause, and doubles the pause as long as it finds
// nothing; after lastPause it waits in the poller. The pause also gathers
// small writes: a reader that read each of them would cost both sides
// a switch of tasks. The pipe holds what the fastest writer makes in several
// firstPauses. For 100 MB in writes of 100 bytes the supervisor takes 0.25 s of CPU time;
// 0.39 if it pauses once and then waits in the poller, and 0.76 without a pause (BenchmarkOutput,
// medians of five runs in turns, two busy CPUs).
const (
	firstPause = 20 * time.Microsecond
	lastPause  = time.Millisecond
	smallRead  = 16 << 10 // a larger one is followed by the next at once
)

// drainLimit bounds what is read after the processes of a run have ended, so
// that a foreign process that holds the pipe cannot write for ever. No pipe
// or terminal holds more.
const drainLimit = 4 << 20

// capture reads one pipe or terminal of a run until its end.
type capture struct {
	fd       int // non-blocking; loop closes it
	poller   *poller
	buffers  *sync.Pool
	emit     func([]byte)  // gets each read's bytes, and keeps none
	finished chan struct{} // closed by finish, read by loop
	done     chan struct{} // closed by loop, read by finish
}

// capture starts reading fd, which must be non-blocking, and takes it over.
func (c *Collector) capture(fd int, emit func([]byte)) *capture {
	r := &capture{
		fd: fd, poller: c.poller, buffers: c.buffers, emit: emit,
		finished: make(chan struct{}), done: make(chan struct{}),
	}
	go r.loop()
	return r
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

// sleep sleeps in the kernel: a timer of the Go runtime would wake more threads
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
// now, and -1 at the end. A terminal that no process holds returns EIO, which is not its
// end: a process of the app may open it again.
func (c *capture) read() int {
	buf := c.buffers.Get().(*[readSize]byte)
	defer c.buffers.Put(buf)
	n, err := unix.Read(c.fd, buf[:])
	for err == unix.EINTR {
		n, err = unix.Read(c.fd, buf[:])
	}
	switch {
	case n > 0:
		c.emit(buf[:n])
		return n
	case err == unix.EAGAIN, err == unix.EIO:
		return 0
	default:
		return -1
	}
}

// finish reads what is left in the pipe and ends the reading. It is called once,
// when the processes that write have ended.
func (c *capture) finish() {
	close(c.finished)
	<-c.done
}

// logWriter writes to an app's log. It reports the first error of a series, since the
// app goes on without a log rather than not at all.
func logWriter(w io.Writer, report func(error)) func([]byte) {
	failed := false
	return func(text []byte) {
		if w == nil {
			return
		}
		_, err := w.Write(text)
		if err != nil && !failed && report != nil {
			report(err)
		}
		failed = err != nil
	}
}
