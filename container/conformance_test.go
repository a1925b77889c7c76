package container

import (
	"log/slog"
	"testing"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/supervisor"
)

func TestRuntimeConforms(t *testing.T) {
	containertest.Run(t, "container", func(cgroup string) supervisor.Runtime {
		return NewRuntime(cgroup, slog.New(slog.DiscardHandler))
	}, nil)
}
