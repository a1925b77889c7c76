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

// Follow returns a child of this program, for which nothing else waits (wait(2)): it collects the child when that has
// ended, and calls release, if that is not nil, before Done is closed. No thread waits for the child.
func Follow(pid int, release func()) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile polls such files only
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := New(pid, os.NewFile(uintptr(fd), "pidfd"))
	polled, err := p.pidfd.SyscallConn()
	if err != nil {
		p.pidfd.Close()
		return nil, err
	}
	go func() {
		status := syscall.WaitStatus(0)
		// The kernel reports the end by the pidfd (poll(2)).
		_ = polled.Read(func(uintptr) bool { return collect(pid, &status) })
		if release != nil {
			release()
		}
		p.End(status)
	}()
	return p, nil
}

// collect returns whether the child has ended, or is none.
func collect(pid int, status *syscall.WaitStatus) bool {
	for {
		got, err := syscall.Wait4(pid, status, syscall.WNOHANG, nil)
		if err != syscall.EINTR {
			return got == pid || err != nil
		}
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
