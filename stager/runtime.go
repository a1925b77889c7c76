package main

import (
	"log/slog"

	"kurma.io/stager/container"
	"kurma.io/stager/supervisor"
)

// This file chooses the runtime. A fork that brings another changes it, and no other.

// beContainer turns the process into a container's first process if that is what the runtime
// has executed this program for, and does not return then. main calls it first.
func beContainer() { container.Init() }

// newRuntime returns the runtime of a pod whose cgroup has that path.
func newRuntime(cgroup string, log *slog.Logger) supervisor.Runtime {
	return container.NewRuntime(cgroup, log)
}
