// Package goinit is the beginning of a stager without cgo, and the pod's PID 1, in Go alone:
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
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// What names.RoleVariable says; without it the program is what the daemon has started.
const (
	roleSupervisor = "supervisor"
	roleInit       = "init"
)

// Main is the main function of a stager with the standard call-ins, and returns the program's exit code. It finds the
// program's part: a call-in by its name, the supervisor or init by its role, or else what the daemon has started.
// newRuntime makes the pod's runtime, which logs to its argument, and uses init from Prepare on. Main is called before
// anything else opens descriptors.
func Main(newRuntime func(*Init, *slog.Logger) spec.Runtime, drivers []unionfs.Driver, steps []boot.Step) int {
	code, err := dispatch(context.Background(), newRuntime, drivers, steps)
	return max(code, callins.ExitCode(err, os.Stderr))
}

func dispatch(
	ctx context.Context, newRuntime func(*Init, *slog.Logger) spec.Runtime, drivers []unionfs.Driver, steps []boot.Step,
) (code int, err error) {
	if callIn, ok := callins.CallIns()[filepath.Base(os.Args[0])]; ok {
		return 0, callIn(ctx, callins.ProcessStreams(), os.Args[1:])
	}
	init := New()
	switch os.Getenv(names.RoleVariable) {
	case roleInit:
		err = Live(newRuntime(init, slog.Default()).KillPod)
	case roleSupervisor:
		inherited := inherit()
		parts := func(log *slog.Logger) boot.Parts {
			return boot.Parts{Runtime: newRuntime(init, log), Drivers: drivers, Init: init, Inherited: inherited}
		}
		code, err = boot.Supervise(ctx, parts, steps)
	default:
		err = becomeSupervisor()
	}
	if err != nil {
		return max(code, 1), fmt.Errorf("%s: %w", names.Program, err)
	}
	return code, nil
}

// inherit returns the descriptors that the daemon has passed, and keeps whatever else it has open, and the role, from
// the supervisor's children.
func inherit() boot.Inherited {
	_ = os.Unsetenv(names.RoleVariable) // fails for a wrong name alone
	in := boot.TakeDescriptors(os.Environ())
	_ = unix.CloseRange(stderr+1, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11
	return in
}
