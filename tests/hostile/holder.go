package hostile

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Hold locks one of the process's pipes, 0, 1 or 2, for good. splice(2) holds the lock while the terminal that it reads
// has nothing, or the terminal that it writes has no room: whoever reads, writes or closes the pipe then waits in the
// kernel, and no signal ends that wait. An output is as good as full by then. Any user may do that.
func Hold(fd int) error {
	runtime.LockOSThread()
	master, slave, err := terminal()
	if err != nil {
		return err
	}
	if fd != 0 {
		if err := fillButOne(fd); err != nil {
			return err
		}
		for err == nil || err == unix.EINTR {
			_, err = unix.Splice(master, nil, fd, nil, 1, 0)
		}
		return fmt.Errorf("splice into %d: %w", fd, err)
	}
	if err := fillPipe(slave); err != nil {
		return err
	}
	for err == nil || err == unix.EINTR {
		_, err = unix.Splice(fd, nil, slave, nil, 1, 0)
	}
	return fmt.Errorf("splice from %d: %w", fd, err)
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

// fillButOne fills a pipe that nobody reads for a moment, but for one block: splice(2) would wait for that without the
// lock.
func fillButOne(fd int) error {
	const moment = 100 // milliseconds
	for n := 1; n > 0; {
		err := fillPipe(fd)
		if err != nil {
			return err
		}
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, moment)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
	}
	own, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	defer own.Close()
	_, err = own.Read(make([]byte, block))
	return err
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
