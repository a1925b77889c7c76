package pid1

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/tests/firstprocess"
	"kurma.io/stager/tests/surroundings"
)

// TestMain is also the waiter, if it is called by the stager's name, and the supervisor,
// which tries to leave the stager's root.
func TestMain(m *testing.M) {
	if os.Getenv(names.SupervisorVariable) != "" && firstprocess.IsWanted() {
		supervise()
	}
	if os.Getenv(names.SupervisorVariable) != "" {
		firstprocess.LeaveRoot()
	}
	if filepath.Base(os.Args[0]) == names.Program {
		namespaces := uintptr(unix.CLONE_NEWPID)
		if firstprocess.IsWanted() {
			namespaces = firstprocess.Namespaces()
		}
		code, err := wait(namespaces)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}

// supervise is the supervisor of the suite.
func supervise() {
	in := boot.TakeDescriptors(os.Environ())
	own, err := takeLine()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	firstprocess.Supervise(own, in.Ready, supervisor.IgnoreSignals)
}

// The suite of every first process.
func TestFirstProcess(t *testing.T) { firstprocess.Run(t) }

// A fault of the supervisor ends it.
func TestAFaultEndsTheSupervisor(t *testing.T) { firstprocess.Faults(t, 1) }

// The supervisor's root is the stager's.
func TestSupervisorsRootIsTheStagers(t *testing.T) { firstprocess.KeepsRoot(t) }
