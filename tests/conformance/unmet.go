// Package conformance runs the cases of a conformance suite. The implementation under test can
// declare that it does not meet some of them.
package conformance

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Case is one promise of a contract. Its name does not change.
type Case struct {
	Name string
	Core bool // no pod runs without it: no implementation can declare that it does not meet the case
	Run  func(testing.TB)
}

// Unmet declares cases that an implementation does not meet: the case's name and the reason, a
// sentence about the implementation. The implementation's documentation must say the same.
type Unmet map[string]string

// Run runs the cases, each as a subtest. It also runs the cases of unmet, and logs each with its
// reason. The test fails if a case of unmet passes, so that declarations stay true, if no case has a
// name of unmet, if a case of unmet is one of the core, and if a reason is empty. who is the implementation, for
// messages. A declared case must call FailNow, Fatal and Fatalf in the goroutine that runs it.
func Run(t *testing.T, who string, cases []Case, unmet Unmet) {
	t.Helper()
	checkDeclared(t, who, cases, unmet)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if reason, ok := unmet[c.Name]; ok {
				runUnmet(t, who, c, reason)
				return
			}
			c.Run(t)
		})
	}
}

// checkDeclared reports names that no case has, or a case of the core, and reasons that are empty.
func checkDeclared(t testing.TB, who string, cases []Case, unmet Unmet) {
	t.Helper()
	known := map[string]Case{}
	for _, c := range cases {
		known[c.Name] = c
	}
	for name, reason := range unmet {
		c, ok := known[name]
		switch {
		case !ok:
			t.Errorf("%s declares that it does not meet %q, which is not a case", who, name)
		case c.Core:
			t.Errorf("%s declares that it does not meet %q, without which no pod runs", who, name)
		}
		if strings.TrimSpace(reason) == "" {
			t.Errorf("%s declares that it does not meet %q without a reason", who, name)
		}
	}
}

// runUnmet runs a declared case, and fails if the case passes.
func runUnmet(t testing.TB, who string, c Case, reason string) {
	t.Helper()
	a := &attempt{TB: t}
	a.do(func() { c.Run(a) })
	if !a.failed {
		t.Errorf("%s passes %q, which it declares not to meet: %s", who, c.Name, reason)
		return
	}
	t.Logf("%s does not meet %q: %s\nThe case reported: %s", who, c.Name, reason, strings.Join(a.reports, "\n"))
}

// attempt is the testing.TB of a declared case: it records what the case reports, and the test goes
// on. Only the methods below differ from those of the test.
type attempt struct {
	testing.TB

	failed   bool
	reports  []string
	cleanups []func()
}

// do runs the case, then the functions that the case registered with Cleanup, the last one first.
func (a *attempt) do(run func()) {
	a.apart(run)
	for len(a.cleanups) > 0 {
		last := len(a.cleanups) - 1
		cleanup := a.cleanups[last]
		a.cleanups = a.cleanups[:last]
		a.apart(cleanup)
	}
}

// apart runs f in a new goroutine, which FailNow can end.
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
