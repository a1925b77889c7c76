package supervisor

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// outletLimit is how far a reader may fall behind, in bytes beyond what
	// its pipe holds, before the app's output waits for it.
	outletLimit = 4 << 20
	// stallLimit is how long it waits for a reader that takes nothing, and
	// slowLimit how long in all for one that takes too little, until the queue
	// is empty again. Then the attachment is dropped.
	stallLimit = 250 * time.Millisecond
	slowLimit  = 4 * time.Second
	// lastLimit bounds the wait for a reader to take the rest after the end.
	lastLimit = 10 * time.Second
)

// outlet is the writing side of an attachment's pipe. What does not fit into
// the pipe is queued, and written by a goroutine that lives until the queue
// is empty.
type outlet struct {
	w     *os.File // non-blocking
	fail  func(error)
	done  func()        // called once the last byte has been written after end
	taken chan struct{} // of capacity 1: the pump has written something

	mu      sync.Mutex
	queue   [][]byte      // guarded by mu
	queued  int           // bytes in queue, guarded by mu
	waited  time.Duration // since the queue was empty last, guarded by mu
	pumping bool          // guarded by mu
	ending  bool          // guarded by mu
	closed  bool          // guarded by mu
}

func newOutlet(w *os.File, fail func(error), done func()) *outlet {
	return &outlet{w: w, fail: fail, done: done, taken: make(chan struct{}, 1)}
}

// write hands chunk on. It is called by one goroutine, and waits for the
// reader only within the limits above: a reader as fast as the app
// gets everything, and one that does not read is dropped.
func (o *outlet) write(chunk []byte) {
	for o.full() {
		if !o.awaitRoom() {
			o.fail(ErrDropped)
			return
		}
	}
	o.mu.Lock()
	err := o.add(chunk)
	o.mu.Unlock()
	if err != nil {
		o.fail(err)
	}
}

func (o *outlet) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queued >= outletLimit && !o.closed
}

// awaitRoom waits for the pump to write something. It says false when the
// reader has used its time up.
func (o *outlet) awaitRoom() bool {
	begun := time.Now()
	timer := time.NewTimer(stallLimit)
	defer timer.Stop()
	select {
	case <-o.taken:
	case <-timer.C:
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waited += time.Since(begun)
	return o.waited < slowLimit
}

// add writes what can be written now and queues the rest. The caller holds mu.
func (o *outlet) add(chunk []byte) error {
	if o.closed || o.ending {
		return nil
	}
	if !o.pumping {
		n, err := o.tryWrite(chunk)
		if err != nil {
			return err
		}
		chunk = chunk[n:]
	}
	if len(chunk) == 0 {
		return nil
	}
	o.queue = append(o.queue, append([]byte(nil), chunk...))
	o.queued += len(chunk)
	if !o.pumping {
		o.pumping = true
		go o.pump()
	}
	return nil
}

// tryWrite writes as much as the pipe takes at once.
func (o *outlet) tryWrite(chunk []byte) (int, error) {
	raw, err := o.w.SyscallConn()
	if err != nil {
		return 0, err
	}
	written := 0
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for written < len(chunk) && failed == nil {
			var n int
			n, failed = unix.Write(int(fd), chunk[written:])
			written += max(n, 0)
			if failed == unix.EINTR {
				failed = nil
			}
		}
		return true
	})
	if failed == unix.EAGAIN {
		failed = nil
	}
	if err == nil {
		err = failed
	}
	return written, err
}

func (o *outlet) pump() {
	for {
		chunk := o.next()
		if chunk == nil {
			return
		}
		if _, err := o.w.Write(chunk); err != nil {
			if os.IsTimeout(err) {
				err = ErrDropped
			}
			o.fail(err)
			return
		}
		o.tellTaken()
	}
}

func (o *outlet) tellTaken() {
	select {
	case o.taken <- struct{}{}:
	default:
	}
}

// next takes the head of the queue; nil ends the pump.
func (o *outlet) next() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	if len(o.queue) == 0 {
		o.pumping = false
		o.waited = 0
		if o.ending {
			o.finish()
		}
		return nil
	}
	chunk := o.queue[0]
	o.queue = o.queue[1:]
	o.queued -= len(chunk)
	return chunk
}

// end closes the pipe behind its last byte.
func (o *outlet) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.ending {
		return
	}
	o.ending = true
	if !o.pumping {
		o.finish()
		return
	}
	_ = o.w.SetWriteDeadline(time.Now().Add(lastLimit))
}

// finish is called with mu held.
func (o *outlet) finish() {
	o.closed = true
	_ = o.w.Close()
	o.done()
}

// abort closes the pipe at once; done is not called.
func (o *outlet) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.queue, o.queued = nil, 0
		_ = o.w.Close()
		o.tellTaken()
	}
}
