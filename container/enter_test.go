package container

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// passing is a process whose number another process gets after it was found alive.
type passing struct {
	spec.Running
	pid   int
	reuse func()
}

func (p passing) PID() int { return p.pid }

func (p passing) Signal(syscall.Signal) error { p.reuse(); return nil }

// sleepApart starts a process in a mount namespace of its own.
func sleepApart(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// The handles are of the process that was found alive, and not of one that gets its number meanwhile.
func TestNoHandleIsOfAnotherProcessWithTheSameNumber(t *testing.T) {
	first := sleepApart(t)
	pid := first.Process.Pid
	reuse := func() {
		_, _ = first.Process.Kill(), first.Wait()
		for again := 0; again != pid; { // another test's process can come between
			if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0); err != nil {
				t.Fatal(err)
			}
			again = sleepApart(t).Process.Pid
		}
	}
	for _, ownPIDs := range []bool{false, true} {
		h, err := openHandles(passing{pid: pid, reuse: reuse}, ownPIDs)
		if err == nil {
			t.Errorf("the handles are %q, of the next process %d", h.mounts.Name(), pid)
			h.close()
		}
		first = sleepApart(t)
		pid = first.Process.Pid
	}
}
