package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// The kernel counts the processes of a cgroup that it has killed because the cgroup was out of
// memory, and does not say which processes. So OOMWatch watches the count: while the main process
// lives, the count included other processes' deaths.
//
// On cgroup v1 the kernel notifies before it counts, and logs a lot in between; on v2 it notifies
// after it has counted, and before it kills. So OOMWatch reads the count several times after each
// notification; a reading is accepted if the main process still lives a moment later.
const (
	oomLooks = 10
	oomPause = 100 * time.Millisecond
)

// oomDelay is how long after a container's start the watch begins: finding the cgroup takes time,
// which the starts of other containers need.
const oomDelay = time.Second

// OOMWatch finds out whether an out-of-memory kill ended a container's main process. The zero
// value is a watch that has not begun. Its methods may be called by several goroutines.
type OOMWatch struct {
	manager  func() (cgroups.Manager, error)
	pid      int           // of the main process
	timer    *time.Timer   // begins the watch
	outlived atomic.Uint64 // the count of out-of-memory kills that the main process outlived

	mu     sync.Mutex
	events *os.File // guarded by mu; nil before open and after Close
	closed bool     // guarded by mu
}

// Start begins to watch a container's cgroup, whose manager is asked for later. pid is the
// main process's. It is called once, before Close and Killed.
func (w *OOMWatch) Start(pid int, manager func() (cgroups.Manager, error)) {
	w.pid, w.manager = pid, manager
	w.timer = time.AfterFunc(oomDelay, w.watch)
}

// Close ends the watch, also one that has not begun.
func (w *OOMWatch) Close() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.events != nil {
		w.events.Close()
		w.events = nil
	}
}

// Killed returns whether the main process, which SIGKILL has ended, was killed because the
// container was out of memory. Another SIGKILL of it cannot be distinguished when it comes
// within moments of the out-of-memory kill of another process.
func (w *OOMWatch) Killed() bool {
	if w.manager == nil {
		return false
	}
	m, err := w.manager()
	if err != nil {
		return false
	}
	kills, err := m.OOMKillCount()
	return err == nil && kills > w.outlived.Load()
}

// watch keeps w.outlived up to date until w is closed.
func (w *OOMWatch) watch() {
	m, err := w.manager()
	if err != nil {
		return // Killed then counts every kill as the main process's
	}
	events, err := openOOMEvents(m)
	if err != nil || !w.open(events) {
		return
	}
	for looks := 1; ; looks = oomLooks {
		for range looks {
			count, err := m.OOMKillCount()
			time.Sleep(oomPause)
			if err != nil || dying(w.pid) {
				return
			}
			w.outlived.Store(count)
		}
		if w.await(m, events) != nil {
			return
		}
	}
}

// open sets the watch's events. If the watch is already closed, it closes them and returns false.
func (w *OOMWatch) open(events *os.File) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		events.Close()
		return false
	}
	w.events = events
	return true
}

// openOOMEvents opens the file that await waits for: on cgroup v2 memory.events, which can be
// polled; on v1 an eventfd (cgroup-v1/memory.rst, OOM Control). Waiting for either occupies no
// thread, and needs no inotify instance, which are scarce.
func openOOMEvents(m cgroups.Manager) (*os.File, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return os.Open(filepath.Join(m.Path(""), "memory.events"))
	}
	dir := m.Path("memory")
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	events := os.NewFile(uintptr(fd), "eventfd")
	order := fmt.Sprintf("%d %d", fd, control.Fd())
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(order), 0); err != nil {
		events.Close()
		return nil, err
	}
	return events, nil
}

// await waits until the kernel may have killed processes of the container because it was out of
// memory, or returns an error once events is closed.
func (w *OOMWatch) await(m cgroups.Manager, events *os.File) error {
	if !cgroups.IsCgroup2UnifiedMode() {
		_, err := events.Read(make([]byte, 8))
		return err
	}
	raw, err := events.SyscallConn()
	if err != nil {
		return err
	}
	woken := false
	return raw.Read(func(uintptr) bool {
		if woken {
			time.Sleep(oomPause) // memory.events also reports other events, up to a hundred times a second
		}
		woken = true
		count, err := m.OOMKillCount()
		return err != nil || count > w.outlived.Load()
	})
}

// dying reports whether a process has ended or has a pending SIGKILL: a large process takes a
// while to end, and the signal stays pending until then (proc_pid_status(5), ShdPnd).
func dying(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return true
	}
	_, pending, _ := strings.Cut(string(status), "\nShdPnd:\t")
	pending, _, _ = strings.Cut(pending, "\n")
	signals, err := strconv.ParseUint(pending, 16, 64)
	return err != nil || signals>>(unix.SIGKILL-1)&1 != 0
}
