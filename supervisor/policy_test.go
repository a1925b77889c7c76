package supervisor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRestartPolicy(t *testing.T) {
	for _, test := range []struct {
		policy RestartPolicy
		code   int
		want   bool
	}{
		{"", 1, false},
		{RestartNever, 1, false},
		{RestartNever, 0, false},
		{RestartOnFailure, 0, false},
		{RestartOnFailure, 1, true},
		{RestartOnFailure, 137, true},
		{RestartAlways, 0, true},
		{RestartAlways, 1, true},
	} {
		if got := test.policy.again(Exit{Code: test.code}); got != test.want {
			t.Errorf("%q after %d: %t", test.policy, test.code, got)
		}
	}
}

func TestExitPolicy(t *testing.T) {
	type verdict struct {
		Code int
		Over bool
	}
	for _, test := range []struct {
		policy ExitPolicy
		codes  []int
		want   verdict
	}{
		{"", []int{1, 2, 3}, verdict{}},
		{ExitNever, []int{1, 2, 3}, verdict{}},
		{ExitAll, []int{0, 4}, verdict{4, false}},
		{ExitAll, []int{0, 4, 5}, verdict{4, true}},
		{ExitAll, []int{0, 0, 0}, verdict{0, true}},
		{ExitFailure, []int{0, 0, 0}, verdict{}},
		{ExitFailure, []int{0, 4}, verdict{4, true}},
	} {
		var exits []Exit
		for _, code := range test.codes {
			exits = append(exits, Exit{Code: code})
		}
		code, over := test.policy.verdict(3, exits)
		if got := (verdict{code, over}); got != test.want {
			t.Errorf("%q after %v: %+v, want %+v", test.policy, test.codes, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
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
