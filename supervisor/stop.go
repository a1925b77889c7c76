package supervisor

import (
	"errors"
	"time"
)

var (
	errStopping = errors.New("the pod stops")
	errTooLate  = errors.New("not started in time")
)

// stop is the two moments at which what runs is to end. Each is a channel that is closed
// when the moment has come; a nil channel is a moment that never comes.
//
//	asked ───── grace ─────► forced
//	SIGTERM                  SIGKILL to the whole cgroup
//
// The pod has one for all of its apps: Run's goroutine calls ask, which closes asked at once
// and forced after the grace period. A post-stop handler has one of its own, in which only
// forced comes (limited). Every goroutine that starts a process or waits for its end reads both.
type stop struct{ asked, forced chan struct{} }

func newStop() stop { return stop{asked: make(chan struct{}), forced: make(chan struct{})} }

// limited returns a stop that comes by force, when limit has passed. release frees its timer.
func limited(limit time.Duration) (s stop, release func()) {
	s.forced = make(chan struct{})
	timer := time.AfterFunc(limit, func() { close(s.forced) })
	return s, func() { timer.Stop() }
}

// ask begins the stop. It is called once, on what newStop returned.
func (s stop) ask(grace time.Duration) {
	close(s.asked)
	time.AfterFunc(grace, func() { close(s.forced) })
}

// isAsked returns whether the stop has begun.
func (s stop) isAsked() bool { return closed(s.asked) }

// begins returns the first moment, after which nothing more is started, and why not.
func (s stop) begins() (<-chan struct{}, error) {
	if s.asked == nil {
		return s.forced, errTooLate
	}
	return s.asked, errStopping
}

// closed returns whether a channel that nothing is sent to is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
