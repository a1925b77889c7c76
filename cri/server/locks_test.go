package server

import (
	"context"
	"errors"
	"testing"
)

// A call whose client has gone waits no longer for the one before it, and leaves no lock.
func TestACallThatEndsWaitsForNoLock(t *testing.T) {
	var l locks
	release, err := l.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.take(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	other, err := l.take(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	next := make(chan func())
	go func() {
		release, err := l.take(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		next <- release
	}()
	release()
	(<-next)()
	if len(l.held) > 0 {
		t.Errorf("%v", l.held)
	}
}
