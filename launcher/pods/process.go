package pods

import (
	"errors"
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
	Start uint64 `json:"start"`          // clock ticks after boot
	Boot  string `json:"boot,omitempty"` // the ID of the boot; "" if it is not known
}

// ofThisBoot reports whether the process is not one of an earlier boot of the machine.
func (p Process) ofThisBoot() bool {
	boot, err := procstat.BootID()
	return p.Boot == "" || err != nil || p.Boot == boot
}

// readStat returns the process's line of /proc, or errGone.
func readStat(pid int) (procstat.Stat, error) {
	stat, err := procstat.Read(pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat, errGone
	}
	return stat, err
}

// identify returns the Process of a live process's PID.
func identify(pid int) (Process, error) {
	stat, err := readStat(pid)
	boot, _ := procstat.BootID() // without it the start time must do
	return Process{PID: pid, Start: stat.Start, Boot: boot}, err
}

// ended reports whether the process is ending or has ended. That its ready descriptor is
// closed does not mean that it is ready then.
func (p Process) ended() bool {
	stat, err := readStat(p.PID)
	return !p.ofThisBoot() || err != nil || stat.Start != p.Start || stat.Exiting() || stat.State == 'Z'
}

// open returns a pidfd of the process, which the caller closes, or errGone.
func (p Process) open() (int, error) {
	if p.PID <= 0 || !p.ofThisBoot() {
		return -1, errGone
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, errGone
	}
	// First the descriptor, which prevents the kernel from reusing the PID, then the check.
	if stat, err := readStat(p.PID); err != nil || stat.Start != p.Start {
		_ = unix.Close(fd)
		return -1, errGone
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
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
		_ = unix.Close(fd)
		return -1, errGone
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
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return errGone
	}
	return nil
}
