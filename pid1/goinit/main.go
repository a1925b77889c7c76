// Package goinit is how a stager without cgo begins, and the pod's PID 1, in Go alone:
//
//	daemon
//	 └─ stager      enters its cgroup and mount namespace, and executes this program again
//	     │          as the supervisor, in the same process
//	     ├─ init    this program once more, in the pod's namespaces: collects orphans, ends with the supervisor
//	     └─ apps    whatever the runtime starts: children of the supervisor that join init's namespaces
//
// The execution is how every thread of the supervisor is in the mount namespace: Go has several when main begins, and
// unshare(2) moves one. The kernel keeps the process's number for the daemon, and there is no second process to wait.
//
// A Go runtime stays in init for the life of the pod, some megabytes. The reference stager's init is in C (package
// pid1), takes a tenth of that, and is the apps' parent. This one is not: a fork in Go copies what the parent has open.
// So an app's orphans are init's children in a PID namespace of the pod's own only. In the host's PID namespace they
// are those of the nearest subreaper (PR_SET_CHILD_SUBREAPER(2const)) among the app's parents, and init ends the pod by
// the runtime's KillPod.
package goinit

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/helper"
	"kurma.io/stager/names"
	"kurma.io/stager/program"
	"kurma.io/stager/spec"
)

// What names.RoleVariable says; without it the program is what the daemon has started.
const (
	roleSupervisor = "supervisor"
	roleInit       = "init"
)

// Begin returns the program.Options.Begin of a stager with this package's init. newRuntime makes the pod's runtime,
// which logs to its argument, and uses init from Prepare on.
func Begin(newRuntime func(*Init, *slog.Logger) spec.Runtime) func() (*program.Supervisor, error) {
	return func() (*program.Supervisor, error) {
		if len(os.Args) != 1 || filepath.Base(os.Args[0]) != names.Program {
			return nil, nil //nolint:nilnil // no supervisor is an answer here
		}
		init := New()
		switch os.Getenv(names.RoleVariable) {
		case roleInit:
			err := Live(newRuntime(init, slog.Default()).KillPod)
			os.Exit(exitCode(err))
		case roleSupervisor:
			return &program.Supervisor{
				Init: init, Inherited: inherit(),
				Runtime: func(_ helper.Starter, log *slog.Logger) spec.Runtime { return newRuntime(init, log) },
			}, nil
		}
		return nil, becomeSupervisor()
	}
}

// exitCode is that of an init, which reports its error.
func exitCode(err error) int {
	if err != nil {
		err = fmt.Errorf("%s: %w", names.Program, err)
	}
	return callins.ExitCode(err, os.Stderr)
}

// inherit returns the descriptors that the daemon has passed, and keeps whatever else it has open, and the role, from
// the supervisor's children.
func inherit() boot.Inherited {
	_ = os.Unsetenv(names.RoleVariable) // fails for a wrong name alone
	in := boot.TakeDescriptors(os.Environ())
	_ = unix.CloseRange(stderr+1, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11
	return in
}
