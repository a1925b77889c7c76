package container

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/failing"
)

// A start that cannot follow its process, as without a descriptor, leaves none.
func TestAProcessThatCannotBeFollowedIsKilled(t *testing.T) {
	r := newRuntime(t)
	c := containerOf(t, r, testSpec(busyboxRoot(t), "sleep", "1000"))
	c.direct = false
	if r.exe == nil {
		if err := r.prepareLibcontainer(); err != nil {
			t.Fatal(err)
		}
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
		if err := (failing.Call{Number: unix.SYS_PIDFD_OPEN, Errno: unix.EMFILE}).Fail(); err != nil {
			failed <- err
			return
		}
		_, err := c.Start(spec.Stdio{})
		failed <- err
	}()
	err := <-failed
	pids, pidsErr := c.PIDs()
	if !errors.Is(err, unix.EMFILE) || len(pids) > 0 || pidsErr != nil {
		t.Errorf("processes %d are left; %v, %v", pids, err, pidsErr)
	}
	if err := errors.Join(c.Kill(), c.Destroy()); err != nil {
		t.Error(err)
	}
}
