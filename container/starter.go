package container

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
)

// starter is the one thread from which commands are started: what it gives to its children, the session keyring and
// the labels, is no other thread's. A new thread for each command would end after it, and the supervisor must
// need no new threads while apps run: where apps have used up the tasks of a cgroup around the pod's, the Go runtime
// ends a program that cannot make one.
type starter struct {
	calls chan func()
}

func newStarter() *starter {
	s := &starter{calls: make(chan func())}
	thread.Go(func() {
		for call := range s.calls {
			call()
		}
	})
	s.do(func() {}) // it has its thread now
	return s
}

// do makes a call on the thread, and returns when that has returned.
func (s *starter) do(call func()) {
	done := make(chan struct{})
	s.calls <- func() {
		defer close(done)
		call()
	}
	<-done
}

// close ends the thread.
func (s *starter) close() { close(s.calls) }

// inPIDs calls start, whose children are in the PID namespace, nil for the supervisor's. It is called on the starter's
// thread, which stays in the supervisor's.
func inPIDs(pids *os.File, start func() error) error {
	if pids == nil {
		return start()
	}
	own, err := os.Open("/proc/thread-self/ns/pid")
	if err != nil {
		return fmt.Errorf("open PID namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(int(pids.Fd()), unix.CLONE_NEWPID); err != nil {
		return os.NewSyscallError("setns", err)
	}
	err = start()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWPID); err != nil {
		panic(err) // the next child would be in another container's namespace
	}
	return err
}
