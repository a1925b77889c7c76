package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// The kernel counts the processes of a cgroup that it has killed for want of
// memory, and does not say which they were. So the count is watched: as long as
// the main process lives on, those that it has counted were others.
//
// On cgroup v1 the kernel tells before it counts, and prints much in between; on v2 it
// tells after it has counted, and before it kills. So after each notice there are several
// looks, and one believes the count of the look before.
const (
	oomLooks = 10
	oomPause = 100 * time.Millisecond
)

// oomDelay is how long after its start a container is watched: to find its cgroup
// takes time, which others need for their start.
const oomDelay = time.Second

// watchOOM keeps c.spared up to date until c.oom is closed.
func (c *container) watchOOM() {
	m, err := c.cgroups()
	if err != nil {
		return // without, a death is told as if nobody had been spared
	}
	events, err := openOOMEvents(m)
	if err != nil || !c.oom.open(events) {
		return
	}
	for looks := 1; ; looks = oomLooks {
		for range looks {
			count, err := m.OOMKillCount()
			time.Sleep(oomPause)
			if err != nil || dying(c.initPID) {
				return
			}
			c.spared.Store(count)
		}
		if c.awaitOOM(m, events) != nil {
			return
		}
	}
}

// oomWatch is what a container is watched by.
type oomWatch struct {
	timer *time.Timer // to watchOOM

	mu     sync.Mutex
	events *os.File // guarded by mu; nil before open and after close
	closed bool     // guarded by mu
}

// open hands the watch its events, and closes them if it is closed already.
func (w *oomWatch) open(events *os.File) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		events.Close()
		return false
	}
	w.events = events
	return true
}

func (w *oomWatch) close() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	closeAll([]*os.File{w.events})
}

// openOOMEvents opens what awaitOOM waits for: on cgroup v2 memory.events, which can be
// polled; on v1 an eventfd (cgroup-v1/memory.rst, OOM Control). A thread waits for
// neither, and neither is as scarce as inotify's instances.
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

// awaitOOM waits until processes of the container may have been killed for want of
// memory, or returns an error once events is closed.
func (c *container) awaitOOM(m cgroups.Manager, events *os.File) error {
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
			time.Sleep(oomPause) // memory.events tells of other events, too, a hundred times a second
		}
		woken = true
		count, err := m.OOMKillCount()
		return err != nil || count > c.spared.Load()
	})
}

// dying tells whether a process has ended or been sent SIGKILL: a large one takes a
// while to end. The signal stays pending until then (proc_pid_status(5), ShdPnd).
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
