package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"kurma.io/stager/internal/filelock"

	"golang.org/x/sys/unix"
)

// The lock of a pod is that of filelock.Hold: a monitor gets it from the process that made the pod (unix(7),
// SCM_RIGHTS), and the kernel releases it with the last descriptor, however the holders end. Other processes can find
// out whether it is held without taking it.

// lockLimit is how long the store's locks are waited for. They are held for moments, but their holder may be stopped.
const lockLimit = time.Minute

// flock takes the lock of flock(2) within limit. The lock ends when the file is closed. After an error the file is
// closed, or will be once the lock is free.
func flock(file *os.File, limit time.Duration) error {
	result, late := make(chan error), make(chan struct{})
	go func() {
		err := filelock.Take(file, unix.LOCK_EX)
		select {
		case result <- err:
		case <-late:
			_ = file.Close()
		}
	}()
	select {
	case err := <-result:
		if err != nil {
			return errors.Join(err, file.Close())
		}
		return nil
	case <-time.After(limit):
		close(late)
		return fmt.Errorf("%s: another process has held the lock for %s", file.Name(), limit)
	}
}

// openLock opens the lock of a pod that exists, for awaitLock. On a file system that is read-only it can be read alone.
func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, unix.EROFS) {
		return os.Open(path)
	}
	return file, err
}

// awaitLock is filelock.AwaitHold until ctx ends. After an error the file is closed, or will be after the wait.
func awaitLock(ctx context.Context, file *os.File) error {
	waited := make(chan error)
	go func() {
		err := filelock.AwaitHold(file)
		select {
		case waited <- err:
		case <-ctx.Done():
			_ = file.Close() // which releases a lock that nobody waits for
		}
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-waited:
		if err != nil {
			return errors.Join(fmt.Errorf("wait for the pod's lock: %w", err), file.Close())
		}
		return nil
	}
}
