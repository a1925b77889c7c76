package containertest

import (
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/conformance"
)

// Unmet declares cases that a runtime does not meet, see conformance.Unmet.
type Unmet = conformance.Unmet

// Run checks that the runtimes that newRuntime makes keep the contracts of spec.Runtime,
// spec.Container and spec.Running, and enforce every field of a spec.Spec. newRuntime makes the runtime of a pod; cgroup
// is the path of the pod's cgroup below every mounted hierarchy. Each case is a subtest. who is the runtime's name, for messages. Run needs root, a mounted cgroup hierarchy,
// Debian's busybox-static and the namespaces that Main makes.
//
// Run also runs the cases of unmet, and logs each with its reason. The test fails if a case of
// unmet passes, so that declarations stay true, if no case has a name of unmet, and if a reason is
// empty. Names of cases do not change. The core, without which no app runs, cannot be declared, and a case that the
// runtime's Support rules out is neither run nor declared.
func Run(t *testing.T, who string, newRuntime func(cgroup string) spec.Runtime, unmet Unmet) {
	t.Helper()
	supported := supportOf(t, newRuntime)
	var list []conformance.Case
	for _, c := range slices.Concat(lifeCases(), podCases(), stdioCases(), userCases(), processCases(), filterCases(), fileCases(), cgroupCases(), apartCases(), outsideCases(), neighbourCases()) {
		list = append(list, conformance.Case{
			Name: c.name, Core: slices.Contains(core(), c.name), Run: func(t testing.TB) { c.run(newBench(t, newRuntime)) },
		})
	}
	list = append(list, conformance.Case{Name: "a user namespace of the app's own", Run: func(t testing.TB) {
		ownUsers(newBench(t, InUserNamespace(newRuntime)))
	}})
	for _, name := range slices.Concat(core(), RuledOut(spec.Support{})) {
		if !slices.ContainsFunc(list, func(c conformance.Case) bool { return c.Name == name }) {
			t.Errorf("%q is the name of no case", name)
		}
	}
	out := RuledOut(supported)
	list = slices.DeleteFunc(list, func(c conformance.Case) bool { return slices.Contains(out, c.Name) })
	if len(out) > 0 {
		t.Logf("the Support of %s rules out: %s", who, strings.Join(out, ", "))
	}
	conformance.Run(t, who, list, unmet)
}

// core are the names of the cases without which no app runs.
func core() []string {
	return []string{
		"exit status", "a program is looked up in PATH", "environment", "descriptors that are files", "Destroy without Start",
		"Kill ends every descendant", "KillPod ends every app", "cgroups are removed by Destroy",
	}
}

func supportOf(t *testing.T, newRuntime func(cgroup string) spec.Runtime) spec.Support {
	t.Helper()
	r := newRuntime("/containertest-support")
	defer func() { must(t, r.Close()) }()
	return r.Support()
}

// RuledOut returns the names of the cases whose isolators no plan has under a runtime with this Support: Run leaves them
// out.
func RuledOut(s spec.Support) (cases []string) {
	for _, need := range []struct {
		met   bool
		cases []string
	}{
		{s.Seccomp, []string{
			"seccomp: default", "seccomp: remove-set with an errno", "seccomp: remove-set without an errno", "seccomp: retain-set",
			"seccomp: a profile", "seccomp: a call that is newer than the filter",
			"seccomp: a filter without the calls that set the user", "seccomp: a filter does not set no_new_privs",
		}},
		{s.UserNamespaces, []string{"a user namespace of the app's own"}},
		{s.CPULimits, []string{"CPU quota and weight"}},
		{s.PIDLimits, []string{"limit of processes"}},
		{s.MemoryLimits, []string{
			"memory limit and request", "an out-of-memory kill of the main process is reported", "another SIGKILL is not an out-of-memory kill",
		}},
		{s.CPULimits && s.MemoryLimits && s.PIDLimits, []string{"the pod's limits"}},
	} {
		if !need.met {
			cases = append(cases, need.cases...)
		}
	}
	return cases
}

type testCase struct {
	name string
	run  func(*bench)
}
