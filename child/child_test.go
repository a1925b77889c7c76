package child

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/surroundings"
)

// TestMain needs root for the test with a filter.
func TestMain(m *testing.M) {
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}

func ended(t *testing.T, p *Process) syscall.WaitStatus {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(surroundings.Patience):
		t.Fatal("the process does not end")
	}
	if err := p.Signal(0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal to an ended process: %v", err)
	}
	return p.Status()
}

// waiting starts a process that exits with 7 when its input ends.
func waiting(t *testing.T) (pid int, input io.Closer) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read -r line; exit 7")
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, input
}

// The status is the child's, and the release comes before Done, also where the Go runtime cannot poll the pidfd.
func TestAChildIsFollowedToItsEnd(t *testing.T) {
	for name, fails := range map[string]uint32{"polled": 0, "not polled": unix.SYS_EPOLL_CTL} {
		t.Run(name, func(t *testing.T) {
			pid, input := waiting(t)
			released := make(chan struct{})
			followed := make(chan *Process)
			go func() {
				runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
				defer close(followed)
				if fails != 0 {
					if err := (failing.Call{Number: fails}).Fail(); err != nil {
						t.Error(err)
						return
					}
				}
				p, err := Follow(pid, func() { close(released) })
				if err != nil {
					t.Error(err)
					return
				}
				followed <- p
			}()
			p := <-followed
			if p == nil {
				return
			}
			if err := p.Signal(0); err != nil {
				t.Errorf("a signal to a process that waits: %v", err)
			}
			if err := input.Close(); err != nil {
				t.Fatal(err)
			}
			if status := ended(t, p); status.ExitStatus() != 7 {
				t.Errorf("status %#x", status)
			}
			<-released
		})
	}
}

// A child that cannot be followed, as without a descriptor, is killed and collected.
func TestAChildThatCannotBeFollowedIsKilled(t *testing.T) {
	pid, input := waiting(t)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
		err := (failing.Call{Number: unix.SYS_PIDFD_OPEN, Errno: unix.EMFILE}).Fail()
		if err == nil {
			_, err = Follow(pid, nil)
		}
		failed <- err
	}()
	err := <-failed
	if killed := unix.Kill(pid, 0); !errors.Is(err, unix.EMFILE) || killed != unix.ESRCH {
		t.Errorf("%v, and the child is there: %v", err, killed)
	}
	_ = input.Close()
}

// The end of a process that is not a child, or that something else has collected, is not reported as success.
func TestAnUnknownEndIsNotASuccess(t *testing.T) {
	p, err := Follow(os.Getppid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if status := ended(t, p); status.Signal() != unix.SIGKILL {
		t.Errorf("status %#x", status)
	}
}
