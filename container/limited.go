package container

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxLooks is how many looks at an app's files may be under way at once.
const maxLooks = 4

// errKilled ends a wait for files that do not answer: a pod that stops does not wait for them.
var errKilled = errors.New("the container was killed before its files answered")

// look calls f with the container's root, to open or read files in it, on a goroutine of its own. What f opens can be
// on a file system that does not answer: an app with CAP_SYS_ADMIN mounts FUSE over /etc and serves nothing, or a
// volume is on a server that is gone. Then look returns an error after the runtime's limit of a command's start. The
// thread that the kernel keeps waiting is lost until the file system answers or goes, so an app has maxLooks of them at
// most, in all its containers: each start makes one. A look at its files that comes later waits for one of these.
//
// discard takes the result of an f that was too late; it is nil if there is nothing to release.
func look[T any](c *container, f func(root *os.File) T, discard func(T)) (result T, err error) {
	late := time.After(c.runtime.execLimit)
	tooLate := fmt.Errorf("the container's files do not answer within %s", c.runtime.execLimit)
	select {
	case c.looks <- struct{}{}:
	case <-c.killed:
		return result, errKilled
	case <-late:
		return result, tooLate
	}
	// A descriptor of its own: Destroy closes the container's.
	fd, err := unix.FcntlInt(c.handles.root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		<-c.looks
		return result, os.NewSyscallError("fcntl", err)
	}
	root := os.NewFile(uintptr(fd), c.handles.root.Name())
	return await(c, late, tooLate, func() T {
		defer func() {
			root.Close()
			<-c.looks
		}()
		return f(root)
	}, discard)
}

// await calls f on a goroutine of its own, and returns its result. If late fires before, or the container is killed,
// await returns tooLate or errKilled, and discard takes the result of f when it comes; discard may be nil.
func await[T any](
	c *container, late <-chan time.Time, tooLate error, f func() T, discard func(T),
) (result T, err error) {
	done, gone := make(chan T), make(chan struct{})
	defer close(gone)
	go func() {
		found := f()
		select {
		case done <- found:
		case <-gone:
			if discard != nil {
				discard(found)
			}
		}
	}()
	select {
	case result = <-done:
		return result, nil
	case <-c.killed:
		return result, errKilled
	case <-late:
		return result, tooLate
	}
}
