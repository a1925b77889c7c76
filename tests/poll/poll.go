// Package poll waits for what no descriptor, socket or exit reports. It does not import package testing, so
// that programs can use it; tests use surroundings.Eventually.
package poll

import "time"

// Until polls a condition until it holds, and returns true, or returns false if it does not hold within the
// limit. The pauses between two looks grow up to the longest pause. It calls condition at least once.
func Until(limit, longest time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(limit)
	for pause := min(100*time.Microsecond, longest); !condition(); pause = min(2*pause, longest) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}
