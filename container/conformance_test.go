package container

import (
	"log/slog"
	"testing"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/spec"
)

func TestRuntimeConforms(t *testing.T) {
	containertest.Run(t, "container", func(cgroup string) spec.Runtime {
		return NewRuntime(cgroup, slog.New(slog.DiscardHandler))
	}, unmet())
}

// unmet returns the cases that a kernel without Landlock cannot meet.
func unmet() containertest.Unmet {
	if landlockABI() >= 2 {
		return nil
	}
	const apart = "without Landlock domains, processes with the same user and capabilities read each other"
	return containertest.Unmet{
		"user 0 reads no other process":                     apart,
		"user 0 with CAP_SYS_PTRACE reads no other process": apart,
		"user 0 with CAP_PERFMON reads no other process":    apart,
	}
}
