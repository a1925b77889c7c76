// Package filelock takes the locks of flock(2), and the open file description locks of fcntl(2).
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Take takes the lock of a file or folder, as flock(2) does for how, until the file is closed. It goes on after a
// signal, and writes nothing. With unix.LOCK_NB it returns unix.EWOULDBLOCK, wrapped, if another open file has the
// lock.
func Take(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "lock", Path: file.Name(), Err: err}
		}
	}
}

// Hold takes the open file description lock (fcntl_locking(2)) of a whole file. It belongs to the open file, which a
// process may pass on, and ends with the last descriptor. Hold returns false if another open file has the lock.
func Hold(file *os.File) (bool, error) {
	err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, wholeFile(unix.F_WRLCK))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("fcntl", err)
}

// AwaitHold is Hold once the lock is free. Of a file that can be read alone, several open files may have the lock at
// once, and none together with Hold's.
func AwaitHold(file *os.File) error {
	kind := int16(unix.F_WRLCK)
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, wholeFile(kind))
		switch {
		case errors.Is(err, unix.EBADF) && kind == unix.F_WRLCK: // the file can be read alone
			kind = unix.F_RDLCK
		case !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("fcntl", err)
		}
	}
}

// IsHeld reports whether an open file has the lock of Hold of the file at path, which it does not take. The error is
// fs.ErrNotExist for a file that does not exist.
func IsHeld(path string) (bool, error) {
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

func wholeFile(kind int16) *unix.Flock_t { return &unix.Flock_t{Type: kind, Whence: io.SeekStart} }
