package plugins

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// newContainers returns containers of the networks in a folder of the test.
func newContainers(t *testing.T, all ...networks.Network) *Containers {
	return &Containers{Dir: filepath.Join(t.TempDir(), "networks"), Networks: all}
}

// A launcher that waits for another one, which starts the network's container, ends when it is asked to.
func TestTheWaitForANetworkEndsWithItsContext(t *testing.T) {
	c := newContainers(t, networks.Network{Name: "n"})
	unlock, err := c.lock(context.Background(), "n", unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	asked := errors.New("asked to end")
	ctx, cancel := context.WithCancelCause(context.Background())
	opened := make(chan error, 1)
	go func() {
		opened <- c.Plugin("n").Start(ctx)
	}()
	select {
	case err := <-opened:
		t.Fatalf("the network was opened beside the lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel(asked)
	select {
	case err := <-opened:
		if !errors.Is(err, asked) {
			t.Errorf("error %v, want that of the context", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the launcher waits on")
	}
	unlock()
	if unlock, err = c.lock(context.Background(), "n", unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	unlock()
}
