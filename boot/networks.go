package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/names"
)

// networks are the pod's networks, which the daemon may connect while the pod starts (names.ConnectedFIFO). A phase that needs
// them waits for them.
type networks struct {
	known chan struct{} // closed when they are connected, or never will be
	err   error         // set before: why they never will be
}

// watchNetworks begins to wait for the pod's networks. It comes after decide, because a supervisor that is started again must
// find the daemon's byte.
func (b *boot) watchNetworks(context.Context) error {
	var err error
	b.networks, err = watchFIFO(names.ConnectedFIFO)
	return err
}

// watchFIFO waits for a byte in the background. Without a FIFO the networks are connected.
func watchFIFO(path string) (*networks, error) {
	n := &networks{known: make(chan struct{})}
	fifo, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		close(n.known)
		return n, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for the pod's networks: %w", err)
	}
	go func() {
		defer close(n.known)
		defer fifo.Close()
		if _, err := io.ReadFull(fifo, make([]byte, 1)); err != nil {
			n.err = fmt.Errorf("wait for the pod's networks: the daemon has not connected them: %w", err)
		}
	}()
	return n, nil
}

// wait waits until the networks are connected.
func (n *networks) wait(ctx context.Context) error {
	select {
	case <-n.known:
		return n.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// releaseApps lets the apps run when the pod's networks are connected, with the name servers of those.
func (b *boot) releaseApps(ctx context.Context) error {
	if err := b.networks.wait(ctx); err != nil {
		return err
	}
	resolver, err := readResolver()
	if err != nil {
		return err
	}
	if !bytes.Equal(resolver, b.resolver) {
		for _, app := range b.plan.Apps {
			if err := rootfs.UpdateResolver(rootOf(app.Name), resolver); err != nil {
				b.log.Warn("the app lacks the name servers of the pod's networks", "app", app.Name, "error", err)
			}
		}
	}
	close(b.mayRun)
	return nil
}
