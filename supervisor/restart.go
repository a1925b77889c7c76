package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// restartLimit bounds Restart beyond the grace period: the end of a run, its post-stop handler and the next start have
// limits, but a log may never take the app's last output.
const restartLimit = 2 * time.Minute

// errMissed means that an app has ended for good before it saw a request.
var errMissed = errors.New("the app has ended meanwhile")

// request is that an app starts again. Its maker reads err after done is closed.
type request struct {
	done   chan struct{}
	err    error
	health bool // of the health checks alone: before its next run the app backs off
}

// finish answers a request, which may be nil.
func (r *request) finish(err error) {
	if r != nil {
		r.err = err
		close(r.done)
	}
}

// revival is a request to an app that has ended for good, for Run's goroutine.
type revival struct {
	app     *app
	request *request
}

// Restart ends the app's run as the pod's stop would, and starts the app again at once, whatever the restart policy
// and the back-off say; an app that is starting, once it has started. An app that has ended for good is started again.
// Restart returns when the main process of the new run has been executed. An error says why it has not been; the app
// then has ended, or goes on by its policies. Calls for one app at the same time may share a run. After ctx, which the
// error wraps, the app is still restarted.
func (p *Supervisor) Restart(ctx context.Context, name string) error {
	a, err := p.find(name)
	if err != nil {
		return err
	}
	limit := p.config.Grace + restartLimit
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		r, err := a.ask()
		if err != nil {
			return fmt.Errorf("app %q: %w", name, err)
		}
		select {
		case <-r.done:
			if errors.Is(r.err, errMissed) {
				continue
			}
			if r.err != nil {
				return fmt.Errorf("app %q: %w", name, r.err)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("app %q: wait for its start: %w", name, context.Cause(ctx))
		case <-late.C:
			return fmt.Errorf("app %q has not started again within %s", name, limit)
		}
	}
}

// ask makes a request to the app, or returns the one that is pending.
func (a *app) ask() (*request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.pod.stop.isAsked():
		return nil, errStopping
	case a.status.State == StateWaiting:
		return nil, errors.New("not started yet")
	case a.unready:
		return nil, errors.New("not ready yet")
	case a.status.State == StateExited && !a.revived:
		return a.askRun()
	case a.pending == nil:
		a.request(false)
	default:
		a.pending.health = false
	}
	return a.pending, nil
}

// request makes a request, with a.mu held and none pending.
func (a *app) request(health bool) {
	a.pending = &request{done: make(chan struct{}), health: health}
	close(a.requested)
}

// askRun passes a request for an app that has ended for good to Run's goroutine, which may need app.mu before.
func (a *app) askRun() (*request, error) {
	a.mu.Unlock()
	defer a.mu.Lock()
	r := &request{done: make(chan struct{})}
	select {
	case a.pod.revivals <- revival{a, r}:
		return r, nil
	case <-a.pod.stop.asked:
		return nil, errStopping
	}
}

// isRequested returns a channel that is closed while a request is pending.
func (a *app) isRequested() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requested
}

// dropHealths drops the pending request if it is the health checks', which has ended the run. It returns whether it
// was.
func (a *app) dropHealths() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil || !a.pending.health {
		return false
	}
	a.pending, a.requested = nil, make(chan struct{})
	return true
}

// takeRequest returns the pending request, nil for none, which is no longer pending.
func (a *app) takeRequest() *request {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.pending
	if r != nil {
		a.pending, a.requested = nil, make(chan struct{})
	}
	return r
}

// ends returns the moments at which a run is to end: those of the pod's stop, or of a request and the grace period
// after it. done is closed when the run has ended.
func (a *app) ends(done <-chan struct{}) stop {
	own, requested := newStop(), a.isRequested()
	go func() {
		var late <-chan time.Time
		select {
		case <-a.pod.stop.asked:
		case <-requested:
			timer := time.NewTimer(a.pod.config.Grace)
			defer timer.Stop()
			late = timer.C
		case <-done:
			return
		}
		close(own.asked)
		select {
		case <-a.pod.stop.forced:
		case <-late:
		case <-done:
			return
		}
		close(own.forced)
	}()
	return own
}

// revive starts the life of an app that has ended for good again.
func (l *loop) revive(r revival) {
	a := r.app
	a.mu.Lock()
	revives := a.status.State == StateExited && !a.revived
	a.mu.Unlock()
	if !revives {
		r.request.finish(errMissed)
		return
	}
	isApp := func(e event) bool { return e.app == a }
	for !slices.ContainsFunc(l.ended, isApp) {
		l.take(<-l.pod.events) // which a has sent, or will at once
	}
	if l.pod.stop.isAsked() {
		r.request.finish(errStopping)
		return
	}
	l.ended = slices.DeleteFunc(l.ended, isApp)
	l.living++
	a.mu.Lock()
	a.revived, a.pending = true, r.request
	close(a.requested)
	a.mu.Unlock()
	go a.liveAgain()
}

// liveAgain is live for an app that has ended for good before.
func (a *app) liveAgain() {
	var err error
	if a.Again != nil {
		err = a.Again()
	}
	if err == nil {
		a.transition(StateRestarting, func(s *AppStatus) { s.Restarts++ })
	}
	a.mu.Lock()
	a.revived = false
	a.mu.Unlock()
	switch {
	case err != nil: // whoever asks from here on asks Run's goroutine, which waits for the event
		a.takeRequest().finish(err)
		a.pod.events <- event{app: a, kind: appEnded, exit: a.lastExit()}
	case a.awaitTaken():
		a.live(false)
	default:
		a.over(a.lastExit())
	}
}

// lastExit returns how an app that has ended has ended.
func (a *app) lastExit() Exit {
	if exit := a.snapshot().Exit; exit != nil {
		return *exit
	}
	return Exit{}
}
