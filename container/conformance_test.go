package container

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/spec"
)

func TestRuntimeConforms(t *testing.T) {
	containertest.Run(t, "container", func(cgroup string) spec.Runtime {
		return NewRuntime(cgroup, slog.New(slog.DiscardHandler))
	}, unmet())
}

func TestDirectRuntimeConforms(t *testing.T) {
	containertest.Run(t, "direct", func(cgroup string) spec.Runtime {
		r := NewRuntime(cgroup, slog.New(slog.DiscardHandler))
		r.SelectStarts(spec.DirectStarts)
		return r
	}, unmet())
}

// All other tests of containers hold for direct starts as well. The Go runtime raises the limit of open files that it
// finds.
func TestDirectStartsPassTheOtherTests(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -S -n 999; exec /proc/$PPID/exe "$@"`, "sh", "-test.skip=^(TestRuntimeConforms|TestDirect.*|TestChildCalls.*|Fuzz.*)$")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "CONTAINERTEST_NAMESPACE=") { // it makes namespaces of its own
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, directVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// unmet returns the cases that a kernel without Landlock cannot meet.
func unmet() containertest.Unmet {
	if landlockABI() >= 2 {
		return nil
	}
	const apart = "without Landlock domains, processes with the same user and capabilities read each other"
	return containertest.Unmet{
		"user 0 reads no other process":                                     apart,
		"user 0 with CAP_SYS_PTRACE reads no other process":                 apart,
		"user 0 with CAP_PERFMON reads no other process":                    apart,
		"no app with CAP_SYS_PTRACE reads or changes a process that starts": apart,
	}
}
