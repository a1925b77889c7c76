package main

import (
	"log/slog"

	"kurma.io/stager/boot"
	"kurma.io/stager/container"
	"kurma.io/stager/helper"
	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// This file selects the runtime, the union file system drivers and the steps of a pod's way. A fork with another
// runtime, driver or step changes only this file. A runtime or driver that needs a process, such as a FUSE daemon,
// starts it with the helper.Starter, so that apps cannot reach the process.

// beContainer makes the process a container's first process if the runtime has executed this program
// for that, and then does not return. main calls it first.
func beContainer() { container.Init() }

// newRuntime returns the runtime of a pod. cgroup is the path of the pod's cgroup.
func newRuntime(cgroup string, init *pid1.Init, _ helper.Starter, log *slog.Logger) spec.Runtime {
	return container.NewRuntime(cgroup, init, log)
}

// newDrivers returns the drivers, in the order of the automatic choice.
func newDrivers(_ helper.Starter) []unionfs.Driver { return unionfs.Drivers() }

// newSteps returns the steps of a pod's way. A fork inserts its own, or leaves one out.
func newSteps() []boot.Step { return boot.Steps() }
