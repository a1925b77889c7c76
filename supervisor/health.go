package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/output"
)

// HealthState is what an app's health checks say about its current run:
//
//	starting ──► healthy ◄──► unhealthy
//	    └─────────────────────────▲
type HealthState string

// The states of an app's health.
const (
	HealthStarting HealthState = "starting" // no check has succeeded yet, and too few have failed
	Healthy        HealthState = "healthy"
	Unhealthy      HealthState = "unhealthy" // the latest HealthCheck.Retries checks have failed, or more
)

// Health is the health of an app that runs.
type Health struct {
	State    HealthState
	Failures int    // checks in a row that have failed, but for those that do not count
	Reason   string // why the latest check has failed, one line; "" if it has not
}

// after returns the health after a check, which began so long after the run and has failed for a reason, "" for a
// success.
func (h Health) after(c *spec.HealthCheck, age time.Duration, failure string) Health {
	h.Reason = failure
	switch {
	case failure == "":
		return Health{State: Healthy}
	case h.State == HealthStarting && age < c.StartPeriod:
		return h
	}
	h.Failures++
	if h.Failures >= c.Retries {
		h.State = Unhealthy
	}
	return h
}

// startInterval is the longest wait for the next check in the start period until the first success, as Docker's.
const startInterval = 5 * time.Second

// pause returns how long the next check of a run of this age waits.
func (h Health) pause(c *spec.HealthCheck, age time.Duration) time.Duration {
	if h.State == HealthStarting && age < c.StartPeriod {
		return min(c.Interval, startInterval)
	}
	return c.Interval
}

// watch checks the health of the run, until its end or the pod's stop. It is on its own goroutine: whatever the app
// does with a check holds up only this one.
func (r *run) watch(c *spec.HealthCheck) {
	defer close(r.watched)
	begun, health := time.Now(), Health{State: HealthStarting}
	for r.pauses(health.pause(c, time.Since(begun))) {
		age, failure := time.Since(begun), "the check before has not ended"
		if r.check == nil || closed(r.check) {
			failure = r.checkHealth(c)
		}
		health = health.after(c, age, failure)
		r.report(health, c.Restart)
	}
}

// pauses returns true after a pause, and false when no more checks are to be made.
func (r *run) pauses(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ended:
	case <-r.app.pod.stop.asked:
	}
	return false
}

// report makes h the app's health, and reports another state, unless the run ends.
func (r *run) report(h Health, restart bool) {
	a := r.app
	a.mu.Lock()
	defer a.mu.Unlock()
	if closed(r.ended) || a.pod.stop.isAsked() {
		return
	}
	before := a.status.Health.State
	a.status.Health = &h
	if h.State == Unhealthy && restart && !a.unready && a.pending == nil { // also one that was not ready before
		a.request(true)
	}
	if h.State == before {
		return
	}
	a.changed(Change{Health: h.State, Reason: h.Reason}) // with the lock held, before the end of the run
	select {
	case r.settled <- h:
	default: // the first one is there
	}
	if h.State == Healthy {
		a.pod.log.Info("app is healthy", "app", a.Name)
		return
	}
	a.pod.log.Warn("app is unhealthy", "app", a.Name, "failures", h.Failures, "reason", h.Reason)
}

// awaitHealthy returns nil when the first check has succeeded, or an error: the app is unhealthy before, or ctx ends.
func (r *run) awaitHealthy(ctx context.Context) error {
	select {
	case h := <-r.settled:
		if h.State == Unhealthy {
			return fmt.Errorf("unhealthy: %s", h.Reason)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkHealth makes one check, and returns why it has failed, "" for a success. It returns at the check's time limit or
// at the end of the run at the latest. r.check is closed when the command's session has ended, and its output.
func (r *run) checkHealth(c *spec.HealthCheck) string {
	var said tail
	streams, err := r.app.pod.output.Open(output.Options{Stdout: &said})
	if err != nil {
		return fmt.Sprintf("open output: %v", err)
	}
	late, release := limited(c.Timeout)
	defer release()
	ended, failure := make(chan struct{}), ""
	r.check = ended
	go func() {
		defer close(ended)
		exit, err := r.executeCheck(c.Command, streams, late)
		streams.Finish()
		failure = failureText(exit, err, said.line())
	}()
	select {
	case <-ended:
		return failure
	case <-late.forced:
		return fmt.Sprintf("not ended within %s", c.Timeout)
	case <-r.ended:
		return ""
	}
}

// executeCheck executes the command of a check until it ends by itself, late kills its session, or the run ends.
func (r *run) executeCheck(cmd spec.Command, streams *output.Streams, late stop) (Exit, error) {
	stdio := stdioOf(streams)
	stdio.Stderr = stdio.Stdout // one pipe keeps the order of what is written
	session, err := r.exec(cmd, stdio)
	if err != nil {
		return Exit{}, err
	}
	streams.Started()
	select {
	case <-session.Done():
	case <-r.ended: // which kills all
	case <-late.forced:
		session.Kill()
	}
	select {
	case <-session.Done():
		return session.Exit(), nil
	case <-r.abandoned:
		return Exit{}, ErrNotRunning
	}
}

// failureText says why a command that has ended so, or was not started, is not a success; "" if it is. said is the last
// line of its output.
func failureText(exit Exit, err error, said string) string {
	text := exit.Reason
	switch {
	case err != nil:
		return err.Error()
	case exit.Code == 0:
		return ""
	case text == "":
		text = fmt.Sprintf("exit code %d", exit.Code)
	}
	if said != "" {
		text += ": " + said
	}
	return text
}

// tailSize is how much of a check's output is kept.
const tailSize = 256

// tail is an io.Writer that keeps the last bytes.
type tail []byte

// Write implements io.Writer.
func (t *tail) Write(chunk []byte) (int, error) {
	all := append(*t, chunk[max(0, len(chunk)-tailSize):]...)
	*t = slices.Clone(all[max(0, len(all)-tailSize):])
	return len(chunk), nil
}

// line returns the last line that is not empty, without what is no UTF-8.
func (t *tail) line() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(*t), ""))
	return strings.TrimSpace(text[strings.LastIndexAny(text, "\r\n")+1:])
}
