package supervisor

import (
	"strings"
	"testing"
	"time"

	"kurma.io/stager/spec"
)

func TestHealthFollowsTheChecks(t *testing.T) {
	c := &spec.HealthCheck{Interval: 30 * time.Second, Retries: 3, StartPeriod: time.Minute}
	starting := Health{State: HealthStarting}
	for _, test := range []struct {
		name    string
		before  Health
		age     time.Duration
		failure string
		want    Health
	}{
		{"first success", starting, 0, "", Health{State: Healthy}},
		{"failure in the start period", starting, time.Minute - 1, "no", Health{HealthStarting, 0, "no"}},
		{"failure after the start period", starting, time.Minute, "no", Health{HealthStarting, 1, "no"}},
		{"last failure without a success", Health{HealthStarting, 2, "a"}, time.Hour, "b", Health{Unhealthy, 3, "b"}},
		{"failure after a success in the start period", Health{State: Healthy}, 0, "no", Health{Healthy, 1, "no"}},
		{"success between failures", Health{Healthy, 2, "no"}, time.Hour, "", Health{State: Healthy}},
		{"last failure", Health{Healthy, 2, "a"}, time.Hour, "b", Health{Unhealthy, 3, "b"}},
		{"one more failure", Health{Unhealthy, 3, "a"}, time.Hour, "b", Health{Unhealthy, 4, "b"}},
		{"recovery", Health{Unhealthy, 4, "a"}, time.Hour, "", Health{State: Healthy}},
	} {
		if got := test.before.after(c, test.age, test.failure); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestChecksComeSoonerInTheStartPeriod(t *testing.T) {
	long := &spec.HealthCheck{Interval: 30 * time.Second, StartPeriod: time.Minute}
	short := &spec.HealthCheck{Interval: 2 * time.Second, StartPeriod: time.Minute}
	for _, test := range []struct {
		name  string
		check *spec.HealthCheck
		state HealthState
		age   time.Duration
		want  time.Duration
	}{
		{"in the start period", long, HealthStarting, 0, 5 * time.Second},
		{"shorter interval", short, HealthStarting, 0, 2 * time.Second},
		{"after the start period", long, HealthStarting, time.Minute, 30 * time.Second},
		{"after a success", long, Healthy, 0, 30 * time.Second},
	} {
		if got := (Health{State: test.state}).pause(test.check, test.age); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestTheReasonIsTheLastLine(t *testing.T) {
	for _, test := range []struct {
		chunks []string
		want   string
	}{
		{nil, ""},
		{[]string{"one\ntwo\n\n"}, "two"},
		{[]string{"one\n", "progress 1%\rprogress 2%\r", "curl: (7) refused \n"}, "curl: (7) refused"},
		{[]string{"a\xffb\n"}, "ab"},
		{[]string{strings.Repeat("x", 1<<20)}, strings.Repeat("x", tailSize)},
		{[]string{strings.Repeat("x", tailSize), "y"}, strings.Repeat("x", tailSize-1) + "y"},
	} {
		var said tail
		for _, chunk := range test.chunks {
			if n, err := said.Write([]byte(chunk)); n != len(chunk) || err != nil {
				t.Errorf("Write() = %d, %v", n, err)
			}
		}
		if got := said.line(); got != test.want {
			t.Errorf("%.20q: %.20q, want %.20q", test.chunks, got, test.want)
		}
	}
}
