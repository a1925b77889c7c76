package containertest

import (
	"slices"
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
// empty. Names of cases do not change.
func Run(t *testing.T, who string, newRuntime func(cgroup string) spec.Runtime, unmet Unmet) {
	t.Helper()
	var list []conformance.Case
	for _, c := range slices.Concat(lifeCases(), podCases(), stdioCases(), userCases(), processCases(), filterCases(), fileCases(), cgroupCases(), apartCases(), outsideCases(), neighbourCases()) {
		list = append(list, conformance.Case{Name: c.name, Run: func(t testing.TB) { c.run(newBench(t, newRuntime)) }})
	}
	list = append(list, conformance.Case{Name: "a user namespace of the app's own", Run: func(t testing.TB) {
		ownUsers(newBench(t, InUserNamespace(newRuntime)))
	}})
	conformance.Run(t, who, list, unmet)
}

type testCase struct {
	name string
	run  func(*bench)
}
