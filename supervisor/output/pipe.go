package output

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// outputPipe is the size of the pipes that apps write to. Four times the
// kernel's default lets an app that writes 4 KiB at a time go on while its
// output is logged: about twice the throughput (supervisor's BenchmarkOutput). More
// than this gains nothing. The kernel takes the memory only when it is filled.
const outputPipe = 256 << 10

// openOutput makes a pipe for an app's output: theirs is for a process, which expects its
// descriptors to block, ours for a capture.
func openOutput() (ours int, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		closePipe(fds)
		return -1, nil, fmt.Errorf("make pipe non-blocking: %w", err)
	}
	// Above the user's limit (pipe(7)) the pipe keeps its size, and is slower.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, outputPipe)
	return fds[0], os.NewFile(uintptr(fds[1]), "output"), nil
}

// pipe makes a pipe of which only our end, the write end or the read end, is non-blocking;
// the other goes to a process, which expects its descriptors to block.
func pipe(ourWrite bool) (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	our, their := fds[0], fds[1]
	if ourWrite {
		our, their = their, our
	}
	if err := unix.SetNonblock(our, true); err != nil {
		closePipe(fds)
		return nil, nil, fmt.Errorf("make pipe non-blocking: %w", err)
	}
	return os.NewFile(uintptr(our), "pipe"), os.NewFile(uintptr(their), "pipe"), nil
}

// isLent reports whether a process gets f itself. A process reopens through /proc/self/fd what it holds, with other
// access, so it gets neither a regular file nor a device: only a pipe or a socket, which the owner has made for it. A
// pipe of a name is a file of the owner's, which the process's user would own from then on.
func isLent(f *os.File) bool {
	info, err := f.Stat() // an error without a file
	if err != nil {
		return false
	}
	switch info.Mode().Type() {
	case os.ModeSocket:
		return true
	case os.ModeNamedPipe:
		var system unix.Statfs_t
		return unix.Fstatfs(int(f.Fd()), &system) == nil && system.Type == unix.PIPEFS_MAGIC
	}
	return false
}

// feeding returns what feed waits for.
func feeding(from, stopped *os.File) []unix.PollFd {
	return []unix.PollFd{{Fd: int32(stopped.Fd())}, {Fd: int32(from.Fd()), Events: unix.POLLIN}}
}

// feed copies a file of the owner's into a process's pipe, until the file ends or cannot be read, or until stopped has
// an end of file: a terminal has its next line for the next run of the app, and not for a thread that waits for this
// one's.
func feed(to, from *os.File, polled []unix.PollFd) {
	buffer := make([]byte, 32<<10)
	for {
		if _, err := unix.Poll(polled, -1); err != nil && err != unix.EINTR {
			return
		}
		if polled[0].Revents != 0 {
			return
		}
		if polled[1].Revents == 0 {
			continue
		}
		n, err := from.Read(buffer)
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// isNull reports whether f is a null device; nil is not.
func isNull(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// sameFile reports whether both are one file.
func sameFile(a, b *os.File) bool {
	first, errA := a.Stat()
	second, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(first, second)
}

// duplicate returns another descriptor of f, for a capture to take over.
func duplicate(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	inner := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(inner, err)
}

func closePipe(fds [2]int) {
	_ = unix.Close(fds[0])
	_ = unix.Close(fds[1])
}

// release closes ends of pipes, or terminals, that a process may have locked: nobody waits for that. A nil file is
// none.
func release(files ...*os.File) {
	files = slices.Clone(files)
	go func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
}
