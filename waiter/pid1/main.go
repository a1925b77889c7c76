package pid1

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// Main is the main function of a stager with the standard call-ins, and returns the program's exit code. It finds the
// program's part: a call-in by its name, the supervisor by its line, or the process that starts the supervisor.
// runtime makes the pod's runtime, which logs to its argument. Main is called before anything else opens descriptors.
func Main(runtime func(*slog.Logger) spec.Runtime, drivers []unionfs.Driver, steps []boot.Step) int {
	code, err := dispatch(context.Background(), runtime, drivers, steps)
	return max(code, callins.ExitCode(err, os.Stderr))
}

func dispatch(
	ctx context.Context, runtime func(*slog.Logger) spec.Runtime, drivers []unionfs.Driver, steps []boot.Step,
) (code int, err error) {
	if callIn, ok := callins.CallIns()[filepath.Base(os.Args[0])]; ok {
		return 0, callIn(ctx, callins.ProcessStreams(), os.Args[1:])
	}
	own, err := takeLine()
	switch {
	case err != nil:
	case own == nil:
		code, err = start(runtime(slog.Default()), drivers)
	default:
		inherited := boot.TakeDescriptors(os.Environ())
		parts := func(log *slog.Logger) boot.Parts {
			return boot.Parts{Runtime: runtime(log), Drivers: drivers, Inherited: inherited}
		}
		code, err = boot.Supervise(ctx, own, parts, steps)
	}
	if err != nil {
		return max(code, 1), fmt.Errorf("%s: %w", names.Program, err)
	}
	return code, nil
}

// start starts the supervisor in the pod's namespaces, and waits.
func start(runtime spec.Runtime, drivers []unionfs.Driver) (int, error) {
	pod, err := boot.Decide(runtime, drivers)
	if err != nil {
		return 1, err
	}
	return wait(pod.Namespaces.CloneFlags())
}
