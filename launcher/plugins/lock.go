package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

const (
	// lockInterval is how often a lock is tried.
	lockInterval = 5 * time.Millisecond
	// callsPatience is how long a container that is to be replaced waits for its calls. It is longer than a
	// call may take: only calls of a launcher that is stopped take longer.
	callsPatience = networks.CallTime + afterKill
)

// lock takes the lock of a network, unix.LOCK_EX to start or stop its container, unix.LOCK_SH to look it up. The wait
// ends with ctx.
func (c *Containers) lock(ctx context.Context, name string, how int) (unlock func(), err error) {
	return c.lockFile(ctx, name, lockFile, how)
}

func (c *Containers) lockFile(ctx context.Context, name, file string, how int) (unlock func(), err error) {
	if err := os.MkdirAll(c.dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.dir(name), file), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := filelock.Take(f, how|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock network %q: %w", name, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock network %q: %w", name, context.Cause(ctx)), f.Close())
		case <-time.After(lockInterval):
		}
	}
}
