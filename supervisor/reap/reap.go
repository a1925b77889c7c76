// Package reap owns wait(2) for a whole program that runs as PID 1 or as a child
// subreaper: it collects every child that ends, and keeps the exit status of the
// children that the program has started itself.
//
// The difficulty: a process can end before the code that started it knows its
// number. wait4(-1) would collect it then, and the status could not be assigned to it.
// And a start may have children of its own (os/exec, libcontainer's stages), for which it
// waits itself: wait4(-1) would take their status away.
//
// The rule is that of a lock with a read side and a write side:
//
//	Spawn (any number at once)                 SIGCHLD
//	──────────────────────────                 ─────────────────────────────────────────
//	┌ read side ──────────────────┐            a full pass is due
//	│ start(): fork, exec, wait   │              │
//	│   for helpers of its own    │              ├─ a Spawn is under way: wait4(PID) for each
//	│                             │              │    registered child, and for each child of
//	│ register the child's number │              │    the first thread; the full pass stays due
//	└─────────────────────────────┘              │
//	the last Spawn to leave makes                │
//	the full pass that is due ──────────────►    └─ no Spawn is under way:
//	                                           ┌ write side ─────────────────────────────┐
//	                                           │ wait4(-1) until no ended child is left: │
//	                                           │   registered: keep the status, Release, │
//	                                           │     close Done                          │
//	                                           │   unknown: an orphan: discard the status│
//	                                           └─────────────────────────────────────────┘
//
// So a full pass never meets a child that is started and not yet registered, and never
// a child of a start.
//
// Orphans (descendants without a parent, which the kernel gives to PID 1 or to the nearest subreaper) are reaped while
// starts are under way as well, even while one hangs: a child belongs to the thread that has forked it, and an orphan
// to the first thread (find_new_reaper in kernel/exit.c), on which no start forks: in a program that keeps its main
// goroutine there (runtime.LockOSThread in an init function) none can. proc_pid_children(5) lists the first thread's
// children. The children of another thread become its children when that thread ends, and libcontainer ends a thread in
// each start. So an orphan is left for two seconds after its end: that is long enough for a start to wait for a helper,
// and to look at an orphan that it returns, whose status is kept beyond them.
//
// On a kernel without that file (CONFIG_PROC_CHILDREN, which distributions set for CRIU) orphans stay zombies while
// starts are under way, also through an unbroken series of overlapping starts.
//
// It is not a sync.RWMutex because its waiting writer would make every new start wait for
// those under way, after each orphan.
package reap

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// maxStrays bounds how many statuses of unknown children are kept. A start registers its process
// some milliseconds after it has got the number.
const maxStrays = 4096

// Reaper owns wait(2) for the whole program. It keeps the exit status of
// the processes started through Spawn and discards that of orphans, which
// become children of PID 1 or of a child subreaper.
//
// While a Reaper runs, nothing else in the program may start a process outside
// Spawn: the Reaper would take its status.
type Reaper struct {
	children chan os.Signal // SIGCHLD
	quit     chan struct{}  // closed by Close, read by loop
	stopped  chan struct{}  // closed by loop, read by Close

	mu       sync.Mutex
	known    map[int]*Child // guarded by mu; registered and not collected, by PID
	spawning int            // guarded by mu; calls of Spawn under way
	due      bool           // guarded by mu; a full pass is due

	ended map[int]time.Time // guarded by mu; orphans that are zombies, by PID, and when they were seen first
	// The unknown children that were collected while calls of Spawn were under way, the last maxStrays of them.
	strays map[int]syscall.WaitStatus // guarded by mu; by PID
	order  []int                      // guarded by mu; the keys of strays, the earliest first
}

// New starts reaping. The program becomes a child subreaper
// (PR_SET_CHILD_SUBREAPER(2const)) unless it is PID 1 already.
func New() (*Reaper, error) {
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
		ended:    make(map[int]time.Time),
		strays:   make(map[int]syscall.WaitStatus),
	}
	r.children <- syscall.SIGCHLD // for children that ended before
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
			r.due = true
			r.reap()
			r.mu.Unlock()
		}
	}
}

// Spawn calls start and registers the process that it returns, so that its
// exit status is kept, however early it ends. Several calls may run at once.
//
// start may have children of its own, and waits for them itself, not later than two seconds after their ends. It must
// not fork on the program's first thread. It may return an orphan, not later than two seconds after the orphan's end
// if it looks at it in /proc. After an error of start none of its children may be left: the Reaper would discard
// their status as that of orphans.
func (r *Reaper) Spawn(start func() (spec.Running, error)) (child *Child, err error) {
	r.mu.Lock()
	r.spawning++
	r.mu.Unlock()
	defer func() { r.leave(child) }()
	process, err := start()
	if err != nil {
		return nil, err
	}
	return &Child{reaper: r, process: process, pid: process.PID(), done: make(chan struct{})}, nil
}

// leave registers child, if there is one, in the same step that ends its start.
func (r *Reaper) leave(child *Child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if child != nil {
		r.register(child)
	}
	r.spawning--
	if r.spawning == 0 {
		clear(r.strays)
		r.order = nil
	}
	if r.due {
		r.reap()
	}
}

// register makes child known, or ended if it has been collected already. The caller holds mu.
func (r *Reaper) register(child *Child) {
	status, collected := r.strays[child.pid]
	// The number may be that of an earlier orphan.
	if !collected || unix.Waitid(unix.P_PID, child.pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil {
		r.known[child.pid] = child
		return
	}
	child.ended, child.status = true, status
	go child.finish()
}

// keep keeps the status of an unknown child for register. The caller holds mu.
func (r *Reaper) keep(pid int, status syscall.WaitStatus) {
	if _, again := r.strays[pid]; !again {
		r.order = append(r.order, pid)
	}
	r.strays[pid] = status
	if len(r.order) > maxStrays {
		delete(r.strays, r.order[0])
		r.order = r.order[1:]
	}
}

// reap collects the children that have ended: all of them, or only the registered
// ones and orphans while starts are under way. The caller holds mu.
func (r *Reaper) reap() {
	if r.spawning > 0 {
		for pid := range r.known {
			r.collect(pid)
		}
		r.reapOrphans()
		return
	}
	clear(r.ended)
	for r.collect(-1) {
	}
	r.due = false
}

// collect waits for one ended child without blocking and returns whether there
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
	} else if r.spawning > 0 {
		r.keep(pid, status)
	}
	return true
}
