package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/child"
)

// family are this program's children. crun leaves an app's process behind, so the program is a child subreaper, and has
// other processes as its children as well: what remains of a start that fails and, in the host's PID namespace, the
// apps' orphans. The family collects these, and leaves the processes that it knows to those who follow them. A program
// has one family; its zero value has not begun.
type family struct {
	starting sync.RWMutex // held for reading while crun runs, whose own children are in nobody's hands yet
	collects sync.Once

	mu    sync.Mutex
	known map[process]struct{} // guarded by mu
}

type process interface{ PID() int }

// adopt makes the program a child subreaper that has the pod's init as a child. The family collects until the program's
// end.
func (f *family) adopt(init process) error {
	f.add(init)
	f.collects.Do(func() {
		died := make(chan os.Signal, 1)
		signal.Notify(died, syscall.SIGCHLD)
		go func() {
			for range died {
				f.collect()
			}
		}()
	})
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	return nil
}

func (f *family) add(p process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = make(map[process]struct{})
	}
	f.known[p] = struct{}{}
}

// await calls start, which returns a child that is followed.
func (f *family) await(start func() (*child.Process, error)) (*child.Process, error) {
	defer f.collect() // which did not have the lock meanwhile
	f.starting.RLock()
	defer f.starting.RUnlock()
	p, err := start()
	if err != nil {
		return nil, err
	}
	f.add(p)
	go func() {
		<-p.Done()
		f.mu.Lock()
		delete(f.known, p)
		f.mu.Unlock()
	}()
	return p, nil
}

// collect collects the dead among the children that nobody follows, unless crun runs.
func (f *family) collect() {
	if !f.starting.TryLock() {
		return
	}
	defer f.starting.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children") // none on a kernel without them (proc_pid_children(5))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for _, number := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(number); err == nil && !f.knows(pid) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // it may live
			}
		}
	}
}

func (f *family) knows(pid int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.known {
		if p.PID() == pid {
			return true
		}
	}
	return false
}
