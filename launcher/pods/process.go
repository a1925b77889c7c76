package pods

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// errGone says that a process has ended, so that its PID may be another process's.
var errGone = errors.New("the process is gone")

// Process identifies a process until the machine is shut down: PIDs are used again, but
// not with the same start time.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
}

// procStat are the fields of /proc/PID/stat that are used here, see proc_pid_stat(5).
type procStat struct {
	state   byte
	exiting bool
	start   uint64
}

// exitingFlag is PF_EXITING of the kernel's include/linux/sched.h, set before
// an ending process's descriptors are closed.
const exitingFlag = 0x4

func readStat(pid int) (procStat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, errGone
	}
	// The second field, the name in parentheses, may have any characters.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return procStat{}, fmt.Errorf("read /proc/%d/stat: it has %d fields", pid, len(fields))
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	return procStat{state: fields[0][0], exiting: flags&exitingFlag != 0, start: start}, nil
}

// identify returns the Process of a live process's PID.
func identify(pid int) (Process, error) {
	stat, err := readStat(pid)
	return Process{PID: pid, Start: stat.start}, err
}

// ended reports whether the process is ending or has ended. That its ready descriptor is
// closed does not mean that it is ready then.
func (p Process) ended() bool {
	stat, err := readStat(p.PID)
	return err != nil || stat.start != p.Start || stat.exiting || stat.state == 'Z'
}

// open returns a pidfd of the process, which the caller closes, or errGone.
func (p Process) open() (int, error) {
	if p.PID <= 0 {
		return -1, errGone
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, errGone
	}
	// First the descriptor, which prevents the kernel from reusing the PID, then the check.
	if stat, err := readStat(p.PID); err != nil || stat.start != p.Start {
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
