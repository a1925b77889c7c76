package reap

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/children"
	"kurma.io/stager/tests/surroundings"
)

// process is a process for which nothing has to be freed.
type process int

func (p process) PID() int { return int(p) }
func (process) Release()   {}

func newReaper(t *testing.T) *Reaper {
	t.Helper()
	r, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func fork(t *testing.T, script string) spec.Running {
	t.Helper()
	return process(children.Fork(t, script))
}

func spawn(t *testing.T, r *Reaper, script string) *Child {
	t.Helper()
	child, err := r.Spawn(func() (spec.Running, error) { return fork(t, script), nil })
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// statusOf waits for the end of a child. Its value is comparable to exited and killed.
func statusOf(c *Child) syscall.WaitStatus {
	<-c.Done()
	return c.Status()
}

// exited is the status of a process that exited with a code, killed that of one that
// SIGKILL ended (wait(2)).
func exited(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }

const killed = syscall.WaitStatus(syscall.SIGKILL)

func TestReaperKeepsACodeThatCameBeforeItsRegistration(t *testing.T) {
	r := newReaper(t)
	child, err := r.Spawn(func() (spec.Running, error) {
		p := fork(t, "exit 3")
		children.AwaitZombie(t, p.PID())
		return p, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := statusOf(child); got != exited(3) {
		t.Errorf("%#x", got)
	}
	if err := child.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestReaperLeavesAStartItsOwnChildren(t *testing.T) {
	r := newReaper(t)
	other := spawn(t, r, "exec sleep 1000")
	_, err := r.Spawn(func() (spec.Running, error) {
		helper := fork(t, "exit 9")
		children.AwaitZombie(t, helper.PID())
		// A registered process is collected while the start is under way, and
		// the helper is not.
		if err := other.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if got := statusOf(other); got != killed {
			t.Errorf("%#x", got)
		}
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(helper.PID(), &status, 0, nil); err != nil || pid != helper.PID() || status.ExitStatus() != 9 {
			t.Errorf("wait for helper: %d, %v, %v", pid, status, err)
		}
		return nil, errors.New("stop here")
	})
	if err == nil {
		t.Error("the start's error is lost")
	}
}

// While a start hangs, orphans are collected, and other starts' children are left to them.
func TestOrphansAreReapedWhileAStartHangs(t *testing.T) {
	r := newReaper(t)
	inside, release, first := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var helper int
	go func() {
		defer close(first)
		_, _ = r.Spawn(func() (spec.Running, error) {
			helper = children.Fork(t, "exit 9")
			children.AwaitZombie(t, helper)
			close(inside)
			<-release
			var status syscall.WaitStatus
			if pid, err := syscall.Wait4(helper, &status, 0, nil); err != nil || pid != helper || status.ExitStatus() != 9 {
				t.Errorf("wait for helper: %d, %v, %v", pid, status, err)
			}
			return nil, errors.New("nothing")
		})
	}()
	<-inside
	family := spawn(t, r, "i=0; while [ $i -lt 100 ]; do ( exit 77 & ); i=$((i+1)); done; exit 4")
	if got := statusOf(family); got != exited(4) {
		t.Errorf("%#x", got)
	}
	surroundings.Eventually(t, "only the helper is left", func() bool {
		left, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
		return err == nil && len(left) == 0
	})
	close(release)
	<-first
}

// A start may return a process that its helper has left to this program, and that has ended.
func TestAStartMayReturnAnOrphan(t *testing.T) {
	r := newReaper(t)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	child, err := r.Spawn(func() (spec.Running, error) {
		helper, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "sh -c 'read gate <&3; exit 7' & echo $!"},
			&syscall.ProcAttr{Files: []uintptr{0, in.Fd(), 2, gate.Fd()}})
		if err != nil {
			return nil, err
		}
		var orphan int
		if _, err := fmt.Fscan(out, &orphan); err != nil {
			return nil, err
		}
		if _, err := syscall.Wait4(helper, nil, 0, nil); err != nil {
			return nil, err
		}
		if err := open.Close(); err != nil {
			return nil, err
		}
		surroundings.Eventually(t, "the orphan is collected", func() bool { return unix.Kill(orphan, 0) == unix.ESRCH })
		return process(orphan), nil
	})
	if err := errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	if got := statusOf(child); got != exited(7) {
		t.Errorf("%#x", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.strays)+len(r.order) > 0 {
		t.Errorf("statuses %v are kept", r.strays)
	}
}

// Few statuses are kept, those of the last.
func TestStatusesOfOrphansAreNotKeptForEver(t *testing.T) {
	r := &Reaper{strays: make(map[int]syscall.WaitStatus)}
	for pid := range maxStrays + 10 {
		r.keep(pid, 0)
		r.keep(pid, syscall.WaitStatus(pid))
	}
	if len(r.strays) != maxStrays || len(r.order) != maxStrays || r.strays[maxStrays+9] != maxStrays+9 {
		t.Errorf("%d and %d are kept", len(r.strays), len(r.order))
	}
}

func TestReaperStartsInParallelWhileAPassIsDue(t *testing.T) {
	const n = 8
	r := newReaper(t)
	r.mu.Lock()
	r.due = true
	r.mu.Unlock()
	var all, ended sync.WaitGroup
	all.Add(n)
	for i := range n {
		ended.Go(func() {
			child, err := r.Spawn(func() (spec.Running, error) {
				all.Done()
				all.Wait()
				return fork(t, fmt.Sprint("exit ", i)), nil
			})
			if err != nil {
				t.Error(err)
			} else if got := statusOf(child); got != exited(i) {
				t.Errorf("child %d: %#x", i, got)
			}
		})
	}
	ended.Wait()
}

func TestReaperCollectsOrphans(t *testing.T) {
	r := newReaper(t)
	waiting := spawn(t, r, "read forever </dev/ptmx")
	shell := "i=0; while [ $i -lt 2500 ]; do ( exit 77 & ); i=$((i+1)); done; exit "
	var shells []*Child
	for i := range 4 {
		shells = append(shells, spawn(t, r, shell+fmt.Sprint(i)))
	}
	for i, c := range shells {
		if got := statusOf(c); got != exited(i) {
			t.Errorf("child %d: %#x", i, got)
		}
	}
	if err := waiting.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if got := statusOf(waiting); got != killed {
		t.Errorf("%#x", got)
	}
	children.AwaitNone(t)
}
