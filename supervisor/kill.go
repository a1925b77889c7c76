package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"
	"time"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/reap"
)

const (
	// killLimit bounds the wait for processes that have been sent SIGKILL:
	// one in uninterruptible sleep must not prevent the pod from ending.
	killLimit = 5 * time.Second
	// killInterval is how often SIGKILL goes to the processes that are left.
	killInterval = 5 * time.Millisecond
)

// waitChild waits for the end of a process: by itself; by the signal request, sent with SIGCONT
// when end.asked closes; or by SIGKILL to its whole cgroup, when end.forced closes, which
// forced reports. The error says that not even SIGKILL ended it.
func waitChild(child *reap.Child, c spec.Container, end stop, request syscall.Signal) (forced bool, err error) {
	asked := end.asked
	for {
		select {
		case <-child.Done():
			return false, nil
		case <-asked:
			asked = nil
			// It may have ended just now. A process that is stopped takes the signal when it goes on.
			_ = child.Signal(request)
			_ = child.Signal(syscall.SIGCONT)
		case <-end.forced:
			err := killUntilEmpty(c, child.Done())
			if closed(child.Done()) {
				return true, nil
			}
			return true, fmt.Errorf("kill process %d: %w", child.PID(), err)
		}
	}
}

// killUntil kills the processes in a container's cgroup, again and again until done is closed.
func killUntil(c spec.Container, done <-chan struct{}) {
	retry := time.NewTicker(killInterval)
	defer retry.Stop()
	for {
		_ = c.Kill() // it is called again
		select {
		case <-done:
			return
		case <-retry.C:
		}
	}
}

// killUntilEmpty kills the processes in a container's cgroup until idle is closed and
// none is left: a process that is being started may escape a single Kill, and a call may fail, as
// when the machine has no more descriptors for a moment.
func killUntilEmpty(c spec.Container, idle <-chan struct{}) error {
	retry := time.NewTicker(killInterval)
	defer retry.Stop()
	limit := time.After(killLimit)
	tooLong := errors.New("some survive SIGKILL")
	for {
		killErr := c.Kill()
		select {
		case <-idle:
		case <-retry.C:
			continue
		case <-limit:
			return cmp.Or(killErr, tooLong)
		}
		pids, err := c.PIDs()
		if err == nil && len(pids) == 0 {
			return nil
		}
		select {
		case <-retry.C:
		case <-limit:
			return cmp.Or(killErr, err, tooLong)
		}
	}
}
