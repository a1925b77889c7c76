// Command mini is a small stager of the reference stager's packages, in one file. It leaves out some of the steps of
// package boot, and puts one of its own between the others. Its apps have volumes, isolators and
// handlers, logs, and answers to status, logs, run and attach; they lack the metadata service, the journal and limits of the network.
//
// In the project's folder, after `make build`, these commands make the stager, and its image with a throwaway key:
//
//	go build -C examples/mini -tags 'seccomp netgo osusergo' -ldflags "-linkmode external -extldflags '-static'" -o /tmp/mini .
//	bin/aci --manifest aci-manifest.json --stager /tmp/mini -o mini.aci
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
	"kurma.io/stager/waiter/pid1"
)

func main() {
	container.Init() // this program is also a container's first process
	code, err := dispatch(context.Background())
	os.Exit(max(code, callins.ExitCode(err, os.Stderr)))
}

// dispatch finds the program's part: a call-in by its name, the supervisor by its line to the
// first process, or that first process.
func dispatch(ctx context.Context) (code int, err error) {
	if callIn, ok := callins.CallIns()[filepath.Base(os.Args[0])]; ok {
		return 0, callIn(ctx, callins.ProcessStreams(), os.Args[1:])
	}
	line, err := pid1.TakeLine()
	if err != nil {
		return 1, err
	}
	runtime := container.NewRuntime(names.AppsCgroup, slog.Default())
	if line == nil {
		code, err = wait(runtime)
	} else {
		code, err = supervise(ctx, line, runtime)
	}
	if err != nil {
		return max(code, 1), fmt.Errorf("%s: %w", names.Program, err)
	}
	return code, nil
}

// wait is the first process. It starts the supervisor in the pod's namespaces.
func wait(runtime spec.Runtime) (int, error) {
	pod, err := boot.Decide(runtime, unionfs.Drivers())
	if err != nil {
		return 1, err
	}
	return pid1.Wait(pod.Namespaces.CloneFlags())
}

// supervise is the pod's PID 1. It returns when the pod is over.
func supervise(ctx context.Context, line *pid1.Line, runtime spec.Runtime) (int, error) {
	inherited := boot.TakeDescriptors(os.Environ()) // before anything else opens some
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	release := supervisor.IgnoreSignals()
	defer release()
	go line.Watch(stop, func() { _ = runtime.KillPod() })
	return boot.Run(ctx, boot.Parts{
		Log: slog.Default(), Runtime: runtime, Drivers: unionfs.Drivers(), Waiter: line, Inherited: inherited,
	}, steps())
}

// steps are most steps of a pod's way, and one that the reference stager does not have.
func steps() []boot.Step {
	without := []string{"reserve threads", "start metadata service", "open journal", "limit network", "guard own limits"}
	steps := slices.DeleteFunc(boot.Steps(), func(s boot.Step) bool { return slices.Contains(without, s.Name) })
	n := slices.IndexFunc(steps, func(s boot.Step) bool { return s.Name == "mount roots" })
	return slices.Insert(steps, n+1, boot.Step{Name: "list apps", Do: listApps})
}

// listApps logs the apps, whose roots are mounted.
func listApps(_ context.Context, pod *boot.Pod) error {
	for _, app := range pod.Plan.Apps {
		pod.Log.Info("app", "name", app.Name, "layers", len(app.Layers), "volumes", len(app.Sources)+len(app.Volumes))
	}
	return nil
}
