// Package filelock takes the locks of flock(2).
package filelock

import (
	"errors"
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
