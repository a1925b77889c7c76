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
	"log/slog"
	"os"
	"slices"

	"kurma.io/stager/boot"
	"kurma.io/stager/container"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
	"kurma.io/stager/waiter/pid1"
)

func main() {
	container.Init() // this program is also a container's first process
	os.Exit(pid1.Main(newRuntime, unionfs.Drivers(), steps()))
}

func newRuntime(log *slog.Logger) spec.Runtime { return container.NewRuntime(names.AppsCgroup, log) }

// steps are most steps of a pod's way, and one that the reference stager does not have.
func steps() []boot.Step {
	without := []string{"reserve threads", "start metadata service", "open journal", "limit network", "guard own limits"}
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
