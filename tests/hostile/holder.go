package hostile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// holder holds those of its streams that are pipes.
func holder() error {
	held := make(chan error)
	pipes := 0
	for fd := range 3 {
		var info unix.Stat_t
		if unix.Fstat(fd, &info) == nil && info.Mode&unix.S_IFMT == unix.S_IFIFO {
			pipes++
			go func() { held <- Hold(fd) }()
		}
	}
	if pipes == 0 {
		return errors.New("no stream is a pipe")
	}
	return <-held
}

// Hold locks one of the process's pipes, 0, 1 or 2, for good. splice(2) holds the lock while the terminal that it reads
// has nothing, or the terminal that it writes has no room: whoever reads, writes or closes the pipe then waits in the
// kernel, and no signal ends that wait. Any user may do that.
func Hold(fd int) error {
	runtime.LockOSThread()
	master, slave, err := terminal()
	if err != nil {
		return err
	}
	if fd != 0 {
		return holdOutput(fd, master, slave)
	}
	if err := fillPipe(slave); err != nil {
		return err
	}
	for err == nil || errors.Is(err, unix.EINTR) {
		_, err = unix.Splice(fd, nil, slave, nil, 1, 0)
	}
	return fmt.Errorf("splice from %d: %w", fd, err)
}

// holdOutput locks a pipe that has text, which its reader wants to read. A reader may have read all before the lock:
// then the lock is released, and taken once more.
func holdOutput(fd, master, slave int) error {
	own, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	go func() {
		defer own.Close()
		for typed := error(nil); typed == nil; time.Sleep(100 * time.Millisecond) {
			// poll(2) takes no lock.
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(own.Fd()), Events: unix.POLLIN}}, 0)
			if n == 0 && err == nil {
				_, typed = unix.Write(slave, []byte("x")) // ends the splice
			}
		}
	}()
	for {
		if err := fillPipe(fd); err != nil {
			return err
		}
		if _, err := unix.Splice(master, nil, fd, nil, 1, 0); err != nil && err != unix.EINTR {
			return fmt.Errorf("splice into %d: %w", fd, err)
		}
	}
}

// terminal opens a terminal that nobody else has.
func terminal() (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, 0, os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	flags := uintptr(unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC)
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return 0, 0, os.NewSyscallError("ioctl TIOCGPTPEER", errno)
	}
	return master, int(peer), nil
}

// block is what is written to a pipe at once.
const block = 4096

// fillPipe fills a pipe or terminal.
func fillPipe(fd int) error {
	text := make([]byte, block)
	err := unix.SetNonblock(fd, true)
	for err == nil {
		_, err = unix.Write(fd, text)
	}
	if err != unix.EAGAIN {
		return fmt.Errorf("fill %d: %w", fd, err)
	}
	return unix.SetNonblock(fd, false)
}
