package supervisor

import "time"

// RestartPolicy says after which ends an app is started again. The zero value is
// never.
type RestartPolicy struct {
	AfterSuccess bool // after exit code 0
	AfterFailure bool // after any other end
}

// ExitPolicy says when the pod ends by itself. The zero value is never: it stays
// until it is stopped.
type ExitPolicy struct {
	WhenAllEnded bool // when every app has ended for good, with the first non-zero exit code, else 0
	AtFailure    bool // when the first app has ended for good with a non-zero exit code, with that code
}

// Named is a policy and the name that users know it by.
type Named[Policy any] struct {
	Name   string
	Policy Policy
}

// RestartPolicies returns the restart policies that have a name.
func RestartPolicies() []Named[RestartPolicy] {
	return []Named[RestartPolicy]{
		{"never", RestartPolicy{}},
		{"on-failure", RestartPolicy{AfterFailure: true}},
		{"always", RestartPolicy{AfterFailure: true, AfterSuccess: true}},
	}
}

// ExitPolicies returns the exit policies that have a name.
func ExitPolicies() []Named[ExitPolicy] {
	return []Named[ExitPolicy]{
		{"never", ExitPolicy{}},
		{"all", ExitPolicy{WhenAllEnded: true}},
		{"failure", ExitPolicy{AtFailure: true}},
	}
}

// The waits before an app's restarts double from firstBackoff to maxBackoff;
// after a run of at least stableRun they start at firstBackoff again.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	stableRun    = 30 * time.Second
)

// restarts returns whether an app that ended with e is to be started again.
func (r RestartPolicy) restarts(e Exit) bool {
	if e.Code != 0 {
		return r.AfterFailure
	}
	return r.AfterSuccess
}

// verdict returns whether a pod of so many apps is to end, and with which exit
// code, after its apps have ended with exits, in this order.
func (x ExitPolicy) verdict(apps int, exits []Exit) (code int, ends bool) {
	for _, e := range exits {
		if e.Code != 0 {
			code = e.Code
			break
		}
	}
	ends = x.AtFailure && code != 0 || x.WhenAllEnded && len(exits) == apps
	if !ends {
		return 0, false
	}
	return code, true
}

// backoff is the state of one app's restarts in a row.
type backoff struct{ failures int }

// next returns the wait before the restart of an app that has just ended
// after running for ran.
func (b *backoff) next(ran time.Duration) time.Duration {
	if ran >= stableRun {
		b.failures = 0
	}
	wait := firstBackoff
	for i := 0; i < b.failures && wait < maxBackoff; i++ {
		wait *= 2
	}
	b.failures++
	return min(wait, maxBackoff)
}
