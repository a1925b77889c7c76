package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"kurma.io/stager/internal/filelock"

	"golang.org/x/sys/unix"
)

// The lock of a pod is an open file description lock (fcntl_locking(2)). It belongs to
// the open file: a monitor gets it from the process that made the pod (unix(7), SCM_RIGHTS), and
// the kernel releases it with the last descriptor, however the holders end. Other processes
// can find out whether it is held without taking it.

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

func wholeFile(kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: io.SeekStart}
}

// tryLock takes the lock, and returns false if another one holds it.
func tryLock(file *os.File) (bool, error) {
	err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, wholeFile(unix.F_WRLCK))
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	return err == nil, os.NewSyscallError("fcntl", err)
}

// openLock opens the lock of a pod that exists, for waitLock. On a file system that is read-only it can be read alone.
func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, unix.EROFS) {
		return os.Open(path)
	}
	return file, err
}

// waitLock waits until the lock is free and takes it. Of a file that can be read alone, several processes may have the
// lock at once, and none together with a monitor.
func waitLock(file *os.File) error {
	kind := int16(unix.F_WRLCK)
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, wholeFile(kind))
		switch {
		case err == unix.EBADF && kind == unix.F_WRLCK: // the file can be read alone
			kind = unix.F_RDLCK
		case err != unix.EINTR:
			return err
		}
	}
}

// awaitLock is waitLock until ctx ends. After an error the file is closed, or will be when the wait is over.
func awaitLock(ctx context.Context, file *os.File) error {
	waited := make(chan error)
	go func() {
		err := waitLock(file)
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
			return errors.Join(fmt.Errorf("wait for the monitor: %w", err), file.Close())
		}
		return nil
	}
}

// isHeld reports whether a process holds the lock of a file, which may be on a file system that is read-only. The error
// is fs.ErrNotExist for a file that does not exist.
func isHeld(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	lock := wholeFile(unix.F_WRLCK)
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, lock); err != nil {
		return false, fmt.Errorf("look at lock %s: %w", path, err)
	}
	return lock.Type != unix.F_UNLCK, nil
}
