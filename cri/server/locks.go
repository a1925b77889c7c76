package server

import (
	"context"
	"fmt"
	"sync"
)

// locks are locks of sandboxes and containers by their IDs, of sandboxes that are made by their names, and of host
// paths: calls that change or make one, or look a path up, wait for each other.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	free  chan struct{} // has one value while nobody has the lock
	users int
}

// take takes the lock of an ID, until release is called. If ctx ends before, take returns its cause.
func (l *locks) take(ctx context.Context, id string) (release func(), err error) {
	one := l.use(id)
	select {
	case <-one.free:
	case <-ctx.Done():
		l.leave(id, one)
		return nil, fmt.Errorf("wait for an earlier call for %s: %w", id, context.Cause(ctx))
	}
	return func() {
		one.free <- struct{}{}
		l.leave(id, one)
	}, nil
}

func (l *locks) use(id string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[string]*lock)
	}
	one := l.held[id]
	if one == nil {
		one = &lock{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		l.held[id] = one
	}
	one.users++
	return one
}

func (l *locks) leave(id string, one *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.held, id)
	}
}
