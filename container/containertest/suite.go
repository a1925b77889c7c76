package containertest

import (
	"slices"
	"testing"

	"kurma.io/stager/tests/conformance"
)

// Unmet declares cases that a runtime does not meet, see conformance.Unmet.
type Unmet = conformance.Unmet

// Run checks that the runtimes that newRuntime makes keep the contracts of
// supervisor.Runtime, supervisor.Container and supervisor.Process, and enforce all of a
// spec.Spec, one subtest a case. who is the runtime's name, for messages. It needs root, a
// mounted cgroup hierarchy, Debian's busybox-static and the namespaces that Main makes.
//
// The cases of unmet are run as well, and the test logs each with its reason. A
// case of unmet that passes is a failure, so that declarations stay true, and so
// is a name that no case has, and a reason that is empty. Names of cases do not change.
func Run(t *testing.T, who string, newRuntime NewRuntime, unmet Unmet) {
	t.Helper()
	var list []conformance.Case
	for _, c := range slices.Concat(lifeCases(), podCases(), stdioCases(), userCases(), processCases(), filterCases(), fileCases(), cgroupCases(), apartCases()) {
		list = append(list, conformance.Case{Name: c.name, Run: func(t testing.TB) { c.run(newBench(t, newRuntime)) }})
	}
	conformance.Run(t, who, list, unmet)
}

type testCase struct {
	name string
	run  func(*bench)
}
