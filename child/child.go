// Package child follows a started process by its pidfd (pidfd_open(2)), for runtimes: Process implements spec.Running.
package child

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a started process. Its methods may be called by several goroutines at once.
type Process struct {
	pid    int
	done   chan struct{}
	status syscall.WaitStatus // written before done is closed, read after

	mu    sync.Mutex
	pidfd *os.File // guarded by mu; nil when the process has ended
}

// New returns a process whose end the caller reports by End. The pidfd is the Process's.
func New(pid int, pidfd *os.File) *Process {
	return &Process{pid: pid, pidfd: pidfd, done: make(chan struct{})}
}

// End says how the process has ended. It is called once.
func (p *Process) End(status syscall.WaitStatus) {
	p.mu.Lock()
	p.pidfd.Close()
	p.pidfd = nil
	p.mu.Unlock()
	p.status = status
	close(p.done)
}

// Kill kills the process and waits until it has ended, but does not collect it. It is called before End. An error says
// that the process has not ended until then: it is in an uninterruptible wait.
func (p *Process) Kill(until time.Time) error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return Await(int(p.pidfd.Fd()), until)
}

// Await waits until the process of a pidfd has ended, of which it need not be the parent (pidfd_open(2)).
func Await(pidfd int, until time.Time) error {
	polled := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(polled, int(max(0, time.Until(until)/time.Millisecond)))
		switch {
		case n > 0:
			return nil
		case err == nil:
			return errors.New("the process does not end")
		case !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("poll", err)
		}
	}
}

// killLimit is how long Follow waits for the end of a child that it has killed.
const killLimit = time.Second

// Follow returns a child of this program, for which nothing else waits (wait(2)): it collects the child when that has
// ended, and calls release, if that is not nil, before Done is closed. No thread waits for the child, unless the Go
// runtime cannot poll its pidfd. The status of a process that something else has collected is that of SIGKILL: it is
// not known. A child that cannot be followed is killed before Follow returns the error.
func Follow(pid int, release func()) (*Process, error) {
	pidfd, polled, err := open(pid)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // its number is free only when it is collected
	}
	p := New(pid, pidfd)
	go func() {
		var status syscall.WaitStatus
		// The kernel reports the end by the pidfd (poll(2)).
		if err != nil || polled.Read(func(uintptr) bool { return collect(pid, &status, syscall.WNOHANG) }) != nil {
			collect(pid, &status, 0)
		}
		if release != nil {
			release()
		}
		p.End(status)
	}()
	if err == nil {
		return p, nil
	}
	select {
	case <-p.Done():
	case <-time.After(killLimit): // as in a frozen cgroup
	}
	return nil, err
}

// open returns a process's pidfd.
func open(pid int) (*os.File, syscall.RawConn, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("pidfd_open", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile polls such files only
		unix.Close(fd)
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	polled, err := pidfd.SyscallConn()
	if err != nil {
		pidfd.Close()
		return nil, nil, err
	}
	return pidfd, polled, nil
}

// unknown is the status of a process whose end is not known, as from wait(2).
const unknown = syscall.WaitStatus(syscall.SIGKILL)

// collect returns whether the child has ended, or is none; options are as in wait(2).
func collect(pid int, status *syscall.WaitStatus, options int) bool {
	for {
		got, err := syscall.Wait4(pid, status, options, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			*status = unknown
		}
		return got == pid || err != nil
	}
}

// PID is the process's number in the PID namespace of this program. Once Done is closed, the number may belong to
// another process.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended and been collected.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status is how the process ended. It may be called once Done is closed.
func (p *Process) Status() syscall.WaitStatus { return p.status }

// Signal sends a signal to the process, never to another process that has since got its number. It returns
// os.ErrProcessDone when the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd == nil {
		return os.ErrProcessDone
	}
	err := unix.PidfdSendSignal(int(p.pidfd.Fd()), sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return os.NewSyscallError("pidfd_send_signal", err)
}
