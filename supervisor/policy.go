package supervisor

import (
	"time"

	"kurma.io/stager/spec"
)

// The waits before an app's restarts double from firstBackoff to maxBackoff;
// after a run of at least stableRun they start at firstBackoff again.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	stableRun    = 30 * time.Second
)

// restarts returns whether an app that ended with e is to be started again.
func restarts(policy spec.RestartPolicy, e Exit) bool {
	if e.Code != 0 {
		return policy.AfterFailure
	}
	return policy.AfterSuccess
}

// verdict returns whether a pod of so many apps is to end, and with which exit
// code, after its apps have ended with exits, in this order.
func verdict(policy spec.ExitPolicy, apps int, exits []Exit) (code int, ends bool) {
	for _, e := range exits {
		if e.Code != 0 {
			code = e.Code
			break
		}
	}
	ends = policy.AtFailure && code != 0 || policy.WhenAllEnded && len(exits) == apps
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
