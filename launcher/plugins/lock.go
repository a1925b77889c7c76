package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockInterval is how often a lock is tried.
const lockInterval = 5 * time.Millisecond

// lock takes the lock of a network. The wait ends with ctx.
func (c *Containers) lock(ctx context.Context, name string) (unlock func(), err error) {
	if err := os.MkdirAll(c.dir(name), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(c.dir(name), lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return nil, errors.Join(fmt.Errorf("lock network %q: %w", name, err), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock network %q: %w", name, context.Cause(ctx)), file.Close())
		case <-time.After(lockInterval):
		}
	}
}
