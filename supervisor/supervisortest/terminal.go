package supervisortest

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// openTerminal opens both sides of a terminal of the caller's devpts, of stdio's size.
func openTerminal(stdio spec.Stdio) (master, terminal *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	size := &unix.Winsize{Col: stdio.Width, Row: stdio.Height}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
		return nil, nil, os.NewSyscallError("ioctl TIOCSWINSZ", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, os.NewSyscallError("ioctl TIOCGPTN", err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, terminal, err
}
