package supervisor

import (
	"slices"
	"testing"
	"time"

	"kurma.io/stager/spec"

	"github.com/google/go-cmp/cmp"
)

// named returns the policy of a name, which the tests use as users' configuration does.
func named[P any](t *testing.T, all []spec.NamedPolicy[P], name string) P {
	t.Helper()
	i := slices.IndexFunc(all, func(n spec.NamedPolicy[P]) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("no policy %q", name)
	}
	return all[i].Policy
}

func TestRestartPoliciesFollowTheExitCode(t *testing.T) {
	for _, test := range []struct {
		policy string
		code   int
		want   bool
	}{
		{"never", 1, false},
		{"never", 0, false},
		{"on-failure", 0, false},
		{"on-failure", 1, true},
		{"on-failure", 137, true},
		{"always", 0, true},
		{"always", 1, true},
	} {
		if got := restarts(named(t, spec.RestartPolicies(), test.policy), Exit{Code: test.code}); got != test.want {
			t.Errorf("%q after %d: %t", test.policy, test.code, got)
		}
	}
	if (spec.RestartPolicy{}) != named(t, spec.RestartPolicies(), "never") {
		t.Error("the zero value is not never")
	}
}

func TestExitPoliciesDecideThePodsEnd(t *testing.T) {
	type decision struct {
		Code int
		Ends bool
	}
	for _, test := range []struct {
		policy string
		codes  []int
		want   decision
	}{
		{"never", []int{1, 2, 3}, decision{}},
		{"all", []int{0, 4}, decision{}},
		{"all", []int{0, 4, 5}, decision{4, true}},
		{"all", []int{0, 0, 0}, decision{0, true}},
		{"failure", []int{0, 0}, decision{}},
		{"failure", []int{0, 0, 0}, decision{0, true}},
		{"failure", []int{0, 4}, decision{4, true}},
	} {
		var exits []Exit
		for _, code := range test.codes {
			exits = append(exits, Exit{Code: code})
		}
		code, ends := verdict(named(t, spec.ExitPolicies(), test.policy), 3, exits)
		if got := (decision{code, ends}); got != test.want {
			t.Errorf("%q after %v: %+v, want %+v", test.policy, test.codes, got, test.want)
		}
	}
	if (spec.ExitPolicy{}) != named(t, spec.ExitPolicies(), "never") {
		t.Error("the zero value is not never")
	}
}

func TestBackOffGrowsUntilAStableRun(t *testing.T) {
	var b backoff
	var got []time.Duration
	for range 11 {
		got = append(got, b.next(time.Second))
	}
	got = append(got, b.next(stableRun), b.next(0))
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	want := []time.Duration{
		ms(100), ms(200), ms(400), ms(800), ms(1600), ms(3200), ms(6400), ms(12800),
		ms(25600), maxBackoff, maxBackoff, ms(100), ms(200),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
