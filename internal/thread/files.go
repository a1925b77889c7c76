package thread

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseFiles gives the calling thread, which runs a call of Go, a table of descriptors of its own: with those of kept,
// and those that the Go runtime needs in each of its threads, its epoll(7) and eventfd(2). A thread that shares the
// process's table may have to close all of its files when the process is killed, and an app can hold that up: splice(2)
// into a pipe locks the pipe for as long as the source, such as an idle terminal, has nothing. The kernel sends the
// parent-death signals of a thread's children when the thread has ended (PR_SET_PDEATHSIG(2const)).
//
// From then on the call uses no file that other goroutines have opened. A kept descriptor has the same number in both
// tables.
func CloseFiles(kept ...int) error {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	const own = "/proc/thread-self/fd/"
	all, err := os.ReadDir(own)
	if err != nil {
		return err
	}
	needed := []string{"anon_inode:[eventpoll]", "anon_inode:[eventfd]"}
	for _, entry := range all {
		target, err := os.Readlink(own + entry.Name())
		if err != nil || slices.Contains(needed, target) {
			continue // ReadDir's own descriptor is closed by now
		}
		if fd, err := strconv.Atoi(entry.Name()); err == nil && !slices.Contains(kept, fd) {
			_ = unix.Close(fd)
		}
	}
	return nil
}
