package supervisor

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxReapDelay bounds how long orphans stay zombies under an unbroken series
	// of starts: after it new starts wait for those under way and one pass.
	maxReapDelay = 100 * time.Millisecond
	// maxPassWait bounds that wait: one start that hangs must not keep all others back.
	maxPassWait = time.Second
)

// Reaper owns wait(2) for the whole program. It keeps the exit status of
// the processes started through Spawn and discards that of orphans, which
// become children of PID 1 or of a child subreaper.
//
// Nothing else in the program may start a process outside Spawn while a
// Reaper runs: its status would be taken away.
type Reaper struct {
	children chan os.Signal
	quit     chan struct{}
	stopped  chan struct{}

	mu       sync.Mutex
	passed   *sync.Cond // a pass over all children has been made, spawning fell, or time has passed
	known    map[int]*Child
	spawning int       // calls of Spawn under way
	owed     time.Time // since when a pass over all children is due; zero: it is not
}

// Child is a started process whose end the Reaper sees.
type Child struct {
	reaper  *Reaper
	process Process
	pid     int
	done    chan struct{}

	ended  bool               // guarded by reaper.mu
	status syscall.WaitStatus // written before done is closed
}

// NewReaper starts reaping. The program becomes a child subreaper
// (PR_SET_CHILD_SUBREAPER(2const)) unless it is PID 1 already.
func NewReaper() (*Reaper, error) {
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become child subreaper: %w", err)
		}
	}
	r := &Reaper{
		children: make(chan os.Signal, 1),
		quit:     make(chan struct{}),
		stopped:  make(chan struct{}),
		known:    make(map[int]*Child),
	}
	r.passed = sync.NewCond(&r.mu)
	r.children <- syscall.SIGCHLD // for what ended before
	signal.Notify(r.children, syscall.SIGCHLD)
	go r.loop()
	return r, nil
}

// Close ends the reaping. Children that have not ended by then are never
// collected. It is called once.
func (r *Reaper) Close() {
	signal.Stop(r.children)
	close(r.quit)
	<-r.stopped
}

func (r *Reaper) loop() {
	defer close(r.stopped)
	for {
		select {
		case <-r.quit:
			return
		case <-r.children:
			r.mu.Lock()
			if r.owed.IsZero() {
				r.owed = time.Now()
			}
			r.reap()
			r.mu.Unlock()
		}
	}
}

// Spawn calls start and registers the process that it returns, so that its
// exit status is kept, however early it ends. Several calls may run at once.
//
// While any start is under way only registered processes are reaped: start
// may have children of its own and may wait for them itself.
func (r *Reaper) Spawn(start func() (Process, error)) (*Child, error) {
	r.enter()
	var child *Child
	defer func() { r.leave(child) }()
	process, err := start()
	if err != nil {
		return nil, err
	}
	child = &Child{reaper: r, process: process, pid: process.PID(), done: make(chan struct{})}
	return child, nil
}

func (r *Reaper) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mustPass() {
		waited := false
		enough := time.AfterFunc(maxPassWait, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			waited = true
			r.passed.Broadcast()
		})
		defer enough.Stop()
		for r.mustPass() && !waited {
			r.passed.Wait()
		}
	}
	r.spawning++
}

// mustPass says, under mu, that a new start has to wait for those under way.
func (r *Reaper) mustPass() bool {
	return r.spawning > 0 && !r.owed.IsZero() && time.Since(r.owed) > maxReapDelay
}

// leave registers child, if there is one, in the same step that ends its start.
func (r *Reaper) leave(child *Child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if child != nil {
		r.known[child.pid] = child
	}
	r.spawning--
	if !r.owed.IsZero() {
		r.reap()
	}
	r.passed.Broadcast()
}

// reap collects what has ended: every child, or only the registered ones
// while starts are under way. The caller holds mu.
func (r *Reaper) reap() {
	if r.spawning > 0 {
		for pid := range r.known {
			r.collect(pid)
		}
		return
	}
	for r.collect(-1) {
	}
	r.owed = time.Time{}
}

// collect waits for one ended child without blocking and says whether there
// was one. The caller holds mu.
func (r *Reaper) collect(which int) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(which, &status, syscall.WNOHANG, nil)
	for err == syscall.EINTR {
		pid, err = syscall.Wait4(which, &status, syscall.WNOHANG, nil)
	}
	if err != nil || pid <= 0 {
		return false
	}
	if child := r.known[pid]; child != nil {
		delete(r.known, pid)
		child.ended = true
		child.status = status
		go child.finish()
	}
	return true
}

// finish frees the process before its end is told, since what waits for the
// end goes on to destroy the container.
func (c *Child) finish() {
	c.process.Release()
	close(c.done)
}

// PID is the process's number in the supervisor's PID namespace. It may
// belong to another process once Done is closed.
func (c *Child) PID() int { return c.pid }

// Done is closed when the process has ended and been collected.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit says how the process ended. It may be called once Done is closed.
func (c *Child) Exit() Exit { return exitOf(c.status) }

// Signal sends a signal to the process, never to another one that has come
// to its number. It returns os.ErrProcessDone when the process has been collected.
func (c *Child) Signal(sig syscall.Signal) error {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	if c.ended {
		return os.ErrProcessDone
	}
	return syscall.Kill(c.pid, sig)
}
