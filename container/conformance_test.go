package container

import (
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/internal/userns"
	"kurma.io/stager/spec"
)

func TestRuntimeConforms(t *testing.T) {
	containertest.Run(t, "container", func(cgroup string) spec.Runtime {
		return NewRuntime(cgroup, initOf(t), slog.New(slog.DiscardHandler))
	}, unmet())
}

func TestDirectRuntimeConforms(t *testing.T) {
	containertest.Run(t, "direct", func(cgroup string) spec.Runtime {
		r := NewRuntime(cgroup, initOf(t), slog.New(slog.DiscardHandler))
		r.SelectStarts(spec.DirectStarts)
		return r
	}, unmet())
}

func TestDirectRuntimeConformsInAUserNamespace(t *testing.T) {
	if !userns.MapsTmpfs() {
		t.Log("the suite's roots are on a tmpfs, which the kernel maps since Linux 6.3: the suite did not run")
		return
	}
	containertest.Run(t, "direct", containertest.InUserNamespace(func(cgroup string) spec.Runtime {
		r := NewRuntime(cgroup, initOf(t), slog.New(slog.DiscardHandler))
		r.SelectStarts(spec.DirectStarts)
		return r
	}), withUnmet(
		"device policy", "nobody makes device nodes in a user namespace",
		"an app with CAP_SYS_ADMIN changes no mask of another app", "it has no power over mounts",
		"a mount at /dev is all of the app's /dev", "it has a devpts, whose owners the kernel cannot map",
	))
}

// No case is left out of the suite.
func TestSupportRulesNothingOut(t *testing.T) {
	r := newRuntime(t)
	if out := containertest.RuledOut(r.Support()); len(out) > 0 {
		t.Errorf("the runtime's Support rules out %q", out)
	}
}

// All other tests of containers hold for direct starts as well. The Go runtime raises the limit of open files that it
// finds.
func TestDirectStartsPassTheOtherTests(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -S -n 999; exec /proc/$PPID/exe "$@"`, "sh", "-test.skip=^(TestRuntimeConforms|TestDirect.*|Fuzz.*)$")
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

// withUnmet returns unmet with more cases and their reasons.
func withUnmet(pairs ...string) containertest.Unmet {
	all := containertest.Unmet{}
	maps.Copy(all, unmet())
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

// unmet returns the cases that an old kernel cannot meet.
func unmet() containertest.Unmet {
	unmet := containertest.Unmet{}
	if !userns.MapsTmpfs() {
		unmet["a user namespace of the app's own"] = "the kernel cannot map a tmpfs (Linux 6.3)"
	}
	if landlockABI() >= 2 {
		return unmet
	}
	const apart = "without Landlock domains, processes with the same user and capabilities read each other"
	for _, name := range []string{
		"user 0 reads no other process", "user 0 with CAP_SYS_PTRACE reads no other process", "user 0 with CAP_PERFMON reads no other process",
		"no app with CAP_SYS_PTRACE reads or changes a process that starts", "user 0 with CAP_SYS_PTRACE reaches no process outside of the pod",
	} {
		unmet[name] = apart
	}
	return unmet
}
