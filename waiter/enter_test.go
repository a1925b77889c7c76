package waiter

import (
	"fmt"
	"os"
	"testing"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/tests/firstprocess"
	"kurma.io/stager/tests/surroundings"
)

// TestMain is also the supervisor, if the waiter has started it,
// which tries to leave the stager's root; and a waiter whose system calls fail.
func TestMain(m *testing.M) {
	if os.Getenv(names.SupervisorVariable) != "" && firstprocess.IsWanted() {
		supervise()
	}
	if os.Getenv(names.SupervisorVariable) != "" && os.Getenv(helperVariable) != "" {
		superviseHelper()
	}
	if os.Getenv(names.SupervisorVariable) == "" && os.Getenv(failsVariable) != "" {
		becomeFailing()
	}
	if os.Getenv(names.SupervisorVariable) != "" {
		firstprocess.LeaveRoot()
	}
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}

// supervise is the supervisor of the suite.
func supervise() {
	in := boot.TakeDescriptors(os.Environ())
	line, err := TakeLine()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	firstprocess.Supervise(line, in.Ready, supervisor.IgnoreSignals)
}

// The suite of every first process.
func TestFirstProcess(t *testing.T) { firstprocess.Run(t) }

// The Go runtime reports a fault of the supervisor.
func TestAFaultIsReported(t *testing.T) { firstprocess.Faults(t, 2) }

// The waiter keeps stdio, its channel, its signals, the lifeline and the pod's PID namespace, and for some time the
// ready pipe.
func TestWaiterKeepsFewDescriptors(t *testing.T) { firstprocess.KeepsDescriptors(t, 8) }

// The waiter's mounts are the daemon's.
func TestWaiterKeepsTheDaemonsMounts(t *testing.T) { firstprocess.KeepsMounts(t) }

// Files are made in the stager's root, whatever the daemon's umask is.
func TestSupervisorHasAUmask(t *testing.T) { firstprocess.HasUmask(t) }

// The supervisor's root is the stager's.
func TestSupervisorsRootIsTheStagers(t *testing.T) { firstprocess.KeepsRoot(t) }
