package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"
	"time"

	"kurma.io/stager/spec"
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
// forced reports. The error says why that did not end it.
func waitChild(child spec.Running, c spec.Container, end stop, request syscall.Signal) (forced bool, err error) {
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
			err := killUntil(c, child.Done(), time.After(killLimit))
			if err != nil {
				err = fmt.Errorf("kill process %d: %w", child.PID(), err)
			}
			return true, err
		}
	}
}

// errSurvivors means that SIGKILL has not ended all processes.
var errSurvivors = errors.New("some survive SIGKILL")

// killUntil kills the processes in a container's cgroup, again and again until done is closed: a process that is being
// started may escape a single Kill, and a call may fail, as when the machine has no more descriptors for a moment. It
// returns an error when late fires before; nil never does.
func killUntil(c spec.Container, done <-chan struct{}, late <-chan time.Time) error {
	retry := time.NewTicker(killInterval)
	defer retry.Stop()
	for {
		err := c.Kill()
		select {
		case <-done:
			return nil
		case <-retry.C:
		case <-late:
			return cmp.Or(err, errSurvivors)
		}
	}
}

// killUntilEmpty kills the processes in a container's cgroup until idle is closed and none is left.
func killUntilEmpty(c spec.Container, idle <-chan struct{}) error {
	late := time.After(killLimit)
	killErr := killUntil(c, idle, late)
	if killErr != nil {
		return killErr
	}
	retry := time.NewTicker(killInterval)
	defer retry.Stop()
	for {
		pids, err := c.PIDs()
		if err == nil && len(pids) == 0 {
			return nil
		}
		select {
		case <-retry.C:
		case <-late:
			return cmp.Or(killErr, err, errSurvivors)
		}
		killErr = c.Kill()
	}
}
