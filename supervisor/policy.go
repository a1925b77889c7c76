package supervisor

import "time"

// RestartPolicy says whether an app is started again after it has ended.
// The zero value is RestartNever.
type RestartPolicy string

// The restart policies.
const (
	RestartNever     RestartPolicy = "never"
	RestartOnFailure RestartPolicy = "on-failure" // after any exit but a plain 0
	RestartAlways    RestartPolicy = "always"
)

// ExitPolicy says when the pod ends by itself. The zero value is ExitNever.
type ExitPolicy string

// The exit policies.
const (
	ExitNever   ExitPolicy = "never"   // stay until stopped
	ExitAll     ExitPolicy = "all"     // when every app has ended, with the first non-zero exit code
	ExitFailure ExitPolicy = "failure" // at the first non-zero exit, with that code
)

// The waits before an app's restarts double from firstBackoff to maxBackoff;
// an app that has run for stableRun begins anew at firstBackoff.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	stableRun    = 30 * time.Second
)

// again says whether an app that ended with e is to be started again.
func (r RestartPolicy) again(e Exit) bool {
	switch r {
	case RestartAlways:
		return true
	case RestartOnFailure:
		return e.Code != 0
	default:
		return false
	}
}

// verdict says whether a pod of so many apps is over, and with which exit
// code, after its apps have ended with exits, in the order they did.
func (x ExitPolicy) verdict(apps int, exits []Exit) (code int, over bool) {
	for _, e := range exits {
		if e.Code != 0 {
			code = e.Code
			break
		}
	}
	switch x {
	case ExitAll:
		return code, len(exits) == apps
	case ExitFailure:
		return code, code != 0
	default:
		return 0, false
	}
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
