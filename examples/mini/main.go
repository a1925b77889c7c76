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
	"os"

	"kurma.io/stager/boot"
	"kurma.io/stager/program"
	"kurma.io/stager/program/native"
)

func main() { os.Exit(program.Main(program.Options{Begin: native.Begin, Steps: steps()})) }

// steps are most steps of a pod's way, and one that the reference stager does not have.
func steps() []boot.Step {
	most := boot.Without(boot.Steps(), "reserve threads", "start metadata service", "open journal", "limit network", "guard own life")
	return boot.After(most, "mount roots", boot.Step{Name: "list apps", Do: listApps})
}

// listApps logs the apps after the mounts of their roots.
func listApps(_ context.Context, pod *boot.Pod) error {
	for _, app := range pod.Plan.Apps {
		pod.Log.Info("app", "name", app.Name, "layers", len(app.Layers), "volumes", len(app.Sources)+len(app.Volumes))
	}
	return nil
}
