package pods

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/procstat"
)

// errGone says that a process has ended, so that its PID may be another process's.
var errGone = errors.New("the process is gone")

// Process identifies a process: PIDs are used again, but until the machine is shut down not with the same start time.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`          // clock ticks after boot, as the initial time namespace has it
	Boot  string `json:"boot,omitempty"` // the ID of the boot; "" if it is not known
}

// ofThisBoot reports whether the process is not one of an earlier boot of the machine.
func (p Process) ofThisBoot() (bool, error) {
	if p.Boot == "" {
		return true, nil
	}
	boot, err := procstat.BootID()
	return p.Boot == boot, err
}

// isGone reports whether an error of the kernel says that a process does not exist. Any other error, such as that of a
// caller without descriptors left, says nothing of the process.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// readStat returns the process's line of /proc, or errGone.
func readStat(pid int) (procstat.Stat, error) {
	stat, err := procstat.Read(pid)
	if isGone(err) {
		return stat, errGone
	}
	return stat, err
}

// identify returns the Process of a live process's PID, or errGone.
func identify(pid int) (Process, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Process{PID: pid}, err
	}
	offset, err := procstat.BootOffset()
	if err != nil {
		return Process{PID: pid}, err
	}
	boot, _ := procstat.BootID() // without it the start time must do
	return Process{PID: pid, Start: stat.Start - uint64(offset), Boot: boot}, nil
}

// stat returns the process's line of /proc, or errGone also if the PID is another process's.
func (p Process) stat() (procstat.Stat, error) {
	stat, err := readStat(p.PID)
	if err != nil {
		return stat, err
	}
	offset, err := procstat.BootOffset()
	if err != nil {
		return stat, err
	}
	// Two time namespaces may round a start to neighbouring ticks. No PID is used again within two ticks.
	if d := int64(stat.Start) - offset - int64(p.Start); d < -1 || d > 1 {
		return stat, errGone
	}
	return stat, nil
}

// ended reports whether the process is ending or has ended. That its ready descriptor is
// closed does not mean that it is ready then.
func (p Process) ended() (bool, error) {
	if ours, err := p.ofThisBoot(); err != nil || !ours {
		return err == nil, err
	}
	stat, err := p.stat()
	if errors.Is(err, errGone) {
		return true, nil
	}
	return stat.Exiting() || stat.State == 'Z', err
}

// open returns a pidfd of the process, which the caller closes, or errGone.
func (p Process) open() (int, error) {
	if p.PID <= 0 {
		return -1, errGone
	}
	if ours, err := p.ofThisBoot(); err != nil {
		return -1, err
	} else if !ours {
		return -1, errGone
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if isGone(err) || err == unix.EINVAL { // EINVAL: a thread of another process has the number now
		return -1, errGone
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, os.NewSyscallError("pidfd_open", err))
	}
	// First the descriptor, which prevents the kernel from reusing the PID, then the check.
	if _, err := p.stat(); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// root opens the process's root directory; pidfd is what open returned. The caller
// closes it.
func (p Process) root(pidfd int) (int, error) {
	path := "/proc/" + strconv.Itoa(p.PID) + "/root"
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	// The process is still alive, so the PID was its own all the time.
	if err := p.send(pidfd, 0); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// signal sends a signal, or returns errGone.
func (p Process) signal(sig syscall.Signal) error {
	fd, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return p.send(fd, sig)
}

// send is signal by what open returned.
func (p Process) send(pidfd int, sig syscall.Signal) error {
	err := unix.PidfdSendSignal(pidfd, sig, nil, 0)
	if err == unix.ESRCH {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, os.NewSyscallError("pidfd_send_signal", err))
	}
	return nil
}

// awaitEnd waits until the process of a pidfd has ended, without a thread, and closes the pidfd.
func awaitEnd(pidfd int) error {
	if err := unix.SetNonblock(pidfd, true); err != nil {
		return errors.Join(os.NewSyscallError("fcntl", err), unix.Close(pidfd))
	}
	file := os.NewFile(uintptr(pidfd), "pidfd")
	defer file.Close()
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(fd uintptr) (done bool) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != nil && err != unix.EINTR {
			failed = os.NewSyscallError("poll", err)
		}
		return n > 0 || failed != nil
	})
	return cmp.Or(failed, err)
}
