package unionfstest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"kurma.io/stager/unionfs"
)

// checkDeclared reports names that no case has, and reasons that are empty.
func checkDeclared(t testing.TB, unmet Unmet) {
	t.Helper()
	known := map[string]bool{}
	for _, c := range cases() {
		known[c.name] = true
	}
	for name, reason := range unmet {
		if !known[name] {
			t.Errorf("the driver declares that it does not meet %q, which is not a case", name)
		}
		if strings.TrimSpace(reason) == "" {
			t.Errorf("the driver declares that it does not meet %q without a reason", name)
		}
	}
}

// runUnmet runs a declared case, and fails if the case passes.
func runUnmet(t testing.TB, d unionfs.Driver, c testCase, reason string) {
	t.Helper()
	a := &attempt{TB: t}
	a.do(func() { c.run(newBench(a, d)) })
	if !a.failed {
		t.Errorf("%s passes %q, which it declares not to meet: %s", d.Name(), c.name, reason)
		return
	}
	t.Logf("%s does not meet %q: %s\nThe case reported: %s", d.Name(), c.name, reason, strings.Join(a.reports, "\n"))
}

// attempt is the testing.TB of a declared case: it keeps what the case reports,
// and the test goes on. Only the methods below differ from those of the test.
// A case must call FailNow, Fatal and Fatalf in the goroutine that runs it.
type attempt struct {
	testing.TB

	failed   bool
	reports  []string
	cleanups []func()
}

// do runs the case, then what the case registered with Cleanup, the last first.
func (a *attempt) do(run func()) {
	a.apart(run)
	for len(a.cleanups) > 0 {
		last := len(a.cleanups) - 1
		cleanup := a.cleanups[last]
		a.cleanups = a.cleanups[:last]
		a.apart(cleanup)
	}
}

// apart runs f in a goroutine of its own, which FailNow can end.
func (a *attempt) apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (a *attempt) Cleanup(f func()) { a.cleanups = append(a.cleanups, f) }
func (a *attempt) Fail()            { a.failed = true }
func (a *attempt) Failed() bool     { return a.failed }

func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

func (a *attempt) Error(args ...any) {
	a.reports = append(a.reports, strings.TrimSpace(fmt.Sprintln(args...)))
	a.Fail()
}

func (a *attempt) Errorf(format string, args ...any) {
	a.reports = append(a.reports, fmt.Sprintf(format, args...))
	a.Fail()
}

func (a *attempt) Fatal(args ...any) {
	a.Error(args...)
	runtime.Goexit()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.Errorf(format, args...)
	runtime.Goexit()
}
