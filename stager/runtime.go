package main

import (
	"log/slog"

	"kurma.io/stager/container"
	"kurma.io/stager/helper"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
)

// This file chooses the runtime and the union file systems' drivers. A fork that brings another
// changes it, and no other. One that needs a process of its own, such as a FUSE daemon, starts it
// with the helper.Starter: apps cannot reach it then.

// beContainer turns the process into a container's first process if that is what the runtime
// has executed this program for, and does not return then. main calls it first.
func beContainer() { container.Init() }

// newRuntime returns the runtime of a pod whose cgroup has that path.
func newRuntime(cgroup string, _ helper.Starter, log *slog.Logger) supervisor.Runtime {
	return container.NewRuntime(cgroup, log)
}

// newDrivers returns the drivers, in the order of the automatic choice.
func newDrivers(_ helper.Starter) []unionfs.Driver { return unionfs.Drivers() }
