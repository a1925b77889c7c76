// Command mini is a small stager of the reference stager's packages, in one file. It leaves out some of the steps of
// package boot, and puts one of its own between the others. Its apps have volumes, isolators and handlers, logs, and
// answers to status, logs, run and attach; they lack the metadata service, the journal and limits of the network.
//
// In the project's folder, after `make build`, these commands make the stager, and its image with a throwaway key:
//
//	go build -C examples/mini -tags 'seccomp netgo osusergo' -ldflags "-linkmode external -extldflags '-static'" -o /tmp/mini .
//	bin/aci --manifest aci-manifest.json --stager /tmp/mini -o mini.aci
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
	"kurma.io/stager/unionfs"
)

func main() {
	container.Init() // this program is also a container's first process
	code, err := dispatch(context.Background())
	os.Exit(max(code, callins.ExitCode(err, os.Stderr)))
}

// dispatch finds the program's part: a call-in by its name, or the supervisor, for which package pid1 has an init if the
// daemon has started the program as the stager.
func dispatch(ctx context.Context) (int, error) {
	if callIn, ok := callins.CallIns()[filepath.Base(os.Args[0])]; ok {
		return 0, callIn(ctx, callins.ProcessStreams(), os.Args[1:])
	}
	init, err := pid1.Take()
	if err != nil || init == nil {
		return 1, errors.Join(errors.New(names.Program+": called neither as the stager nor as a call-in"), err)
	}
	inherited := boot.TakeDescriptors(os.Environ())
	code, err := boot.Supervise(ctx, func(log *slog.Logger) boot.Parts {
		return boot.Parts{
			Runtime: container.NewRuntime(names.AppsCgroup, init, log), Drivers: unionfs.Drivers(), Init: init, Inherited: inherited,
		}
	}, steps())
	if err != nil {
		return max(code, 1), fmt.Errorf("%s: %w", names.Program, err)
	}
	return code, nil
}

// steps are most steps of a pod's way, and one that the reference stager does not have.
func steps() []boot.Step {
	without := []string{"reserve threads", "start metadata service", "open journal", "limit network", "guard own life"}
	steps := slices.DeleteFunc(boot.Steps(), func(s boot.Step) bool { return slices.Contains(without, s.Name) })
	n := slices.IndexFunc(steps, func(s boot.Step) bool { return s.Name == "mount roots" })
	return slices.Insert(steps, n+1, boot.Step{Name: "list apps", Do: listApps})
}

// listApps logs the apps after the mounts of their roots.
func listApps(_ context.Context, pod *boot.Pod) error {
	for _, app := range pod.Plan.Apps {
		pod.Log.Info("app", "name", app.Name, "layers", len(app.Layers), "volumes", len(app.Sources)+len(app.Volumes))
	}
	return nil
}
