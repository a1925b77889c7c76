package supervisor

import (
	"context"
	"errors"
)

// reportStarted sends the appStarted event: at once, or when the app is ready.
func (r *run) reportStarted(err error) (mainEnded func()) {
	a := r.app
	if err != nil || !a.getsReady() {
		a.pod.events <- event{app: a, kind: appStarted, err: err}
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		err := r.awaitReady(ctx)
		a.setUnready(false)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		a.pod.events <- event{app: a, kind: appStarted, err: err}
	}()
	return func() { cancel(errors.New("ended before it was ready")) }
}

// getsReady returns whether the app is ready only some time after its start.
func (a *app) getsReady() bool { return a.Ready != nil || a.Health != nil && a.Health.Ready }

// awaitReady returns nil once the app is ready, or the first reason why it never will be.
func (r *run) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var waits []func(context.Context) error
	if r.app.Ready != nil {
		waits = append(waits, r.app.Ready)
	}
	if check := r.app.Health; check != nil && check.Ready {
		waits = append(waits, r.awaitHealthy)
	}
	results := make(chan error, len(waits))
	for _, wait := range waits {
		go func() { results <- wait(ctx) }()
	}
	for range waits {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

func (a *app) setUnready(unready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unready = unready
}
