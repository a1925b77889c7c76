package hostile

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reopener does to its own streams all that Reopen does, for ever.
func reopener() error {
	for {
		Reopen()
		rest()
	}
}

// Reopen tries to reach what is behind the streams 0 to 2 of its caller: it opens them again with other access, reads and writes there,
// truncates, and changes modes, owners, flags and sizes. It returns how many calls have succeeded.
func Reopen() (done int) {
	try := func(err error) {
		if err == nil {
			done++
		}
	}
	for fd := range 3 {
		path := fmt.Sprintf("/proc/self/fd/%d", fd)
		for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR | unix.O_TRUNC, unix.O_RDWR | unix.O_APPEND} {
			again, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if try(err); err != nil {
				continue
			}
			_, err = unix.Read(again, make([]byte, 1<<16)) // before a write, whose bytes are this program's own
			try(err)
			_, err = unix.Pwrite(again, []byte("stolen\n"), 0)
			try(err)
			_, err = unix.Write(again, []byte("stolen\n"))
			try(err)
			try(unix.Close(again))
		}
		try(unix.Truncate(path, 0))
		try(unix.Ftruncate(fd, 0))
		try(unix.Chmod(path, 0o667))
		try(unix.Fchmod(fd, 0o667))
		try(unix.Chown(path, 1234, 1234))
		try(unix.Utime(path, &unix.Utimbuf{}))
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK|unix.O_APPEND)
		try(err)
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 4096)
		try(err)
		_, err = unix.Seek(fd, 0, 0)
		try(err)
		try(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
	}
	return done
}
