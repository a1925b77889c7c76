package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Session is a command that runs in an app beside its main process, and the
// processes it started that have not begun a session (setsid(2)) of their own.
// It ends with the app at the latest. Its methods may be called by
// several goroutines at once.
type Session struct{ child *Child }

// Exec starts a command in an app whose main process runs. The errors are
// ErrNoApp, ErrNotRunning and *ExecError, wrapped, or any other. It returns a
// few seconds after the main process's end at the latest, even when the start hangs. The caller
// closes its own files of stdio, and the terminal's master.
func (p *Pod) Exec(app string, cmd Command, stdio Stdio) (*Session, error) {
	a, err := p.find(app)
	if err != nil {
		return nil, err
	}
	r, err := a.join()
	if err != nil {
		return nil, err
	}
	var child *Child
	select {
	case s := <-r.startCommand(cmd, stdio):
		child, err = s.child, s.err
	case <-r.abandoned:
		err = ErrNotRunning
	}
	if err != nil {
		if r.over() {
			err = ErrNotRunning
		}
		return nil, fmt.Errorf("start command in app %q: %w", app, err)
	}
	return &Session{child: child}, nil
}

type startedCommand struct {
	child *Child
	err   error
}

// startCommand starts a command for the user that join has added. A start that
// hangs keeps a goroutine, not its caller; what it may still start then is killed.
func (r *run) startCommand(cmd Command, stdio Stdio) <-chan startedCommand {
	started := make(chan startedCommand, 1)
	go func() {
		defer r.users.Done()
		child, err := r.app.pod.spawn(r.slots, r.ended, ErrNotRunning, func() (Process, error) { return r.main.Exec(cmd, stdio) })
		started <- startedCommand{child, err}
		if err != nil {
			return
		}
		select {
		case <-child.Done():
		case <-r.abandoned:
			_ = child.Signal(syscall.SIGKILL) // it may have ended just now
			<-child.Done()
		}
	}()
	return started
}

// join adds a user to the app's run; startCommand takes it away.
func (a *app) join() (*run, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status.State != StateRunning {
		return nil, fmt.Errorf("app %q: %w", a.Name, ErrNotRunning)
	}
	a.run.users.Add(1)
	return a.run, nil
}

// over says whether the main process has ended.
func (r *run) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// PID is the command's number in the supervisor's PID namespace.
func (s *Session) PID() int { return s.child.PID() }

// Done is closed when the command has ended; processes that it started may
// still run.
func (s *Session) Done() <-chan struct{} { return s.child.Done() }

// Exit says how the command ended. It may be called once Done is closed.
func (s *Session) Exit() Exit { return s.child.Exit() }

// Signal sends a signal to the command, os.ErrProcessDone when it has ended.
func (s *Session) Signal(sig syscall.Signal) error { return s.child.Signal(sig) }

// Kill sends SIGKILL to the command and to every process of its session,
// until none is left or a few seconds have passed.
func (s *Session) Kill() {
	deadline := time.Now().Add(killLimit)
	for {
		members := s.members()
		if len(members) == 0 || time.Now().After(deadline) {
			closeAll(members)
			return
		}
		for _, fd := range members {
			// It may have ended just now.
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		awaitEnd(members, deadline)
		closeAll(members)
	}
}

// members returns pidfds (pidfd_open(2)) of the living processes of the session.
func (s *Session) members() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var fds []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || sessionOf(pid) != s.child.pid {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// The descriptor holds the process, so this answer is about the
		// one that gets the signal, or about none.
		if sessionOf(pid) != s.child.pid {
			closeAll([]int{fd})
			continue
		}
		fds = append(fds, fd)
		if pid == s.child.pid && s.ended() {
			// The number leads a new session: the old one has no member left.
			closeAll(fds)
			return nil
		}
	}
	return fds
}

func (s *Session) ended() bool { return errors.Is(s.child.Signal(0), os.ErrProcessDone) }

// sessionOf returns a living process's session, 0 for a zombie or none
// (proc_pid_stat(5), fields 3, 6 and 20).
func sessionOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The second field may hold anything, but no later one a parenthesis.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 18 {
		return 0
	}
	// A zombie with threads is a process whose first thread has ended.
	if bytes.ContainsAny(fields[0], "ZX") && threads(fields) <= 1 {
		return 0
	}
	session, err := strconv.Atoi(string(fields[3]))
	if err != nil {
		return 0
	}
	return session
}

// threads is the number of threads among the fields of /proc/PID/stat from
// the third on, 0 when there is none.
func threads(fields [][]byte) int {
	n, err := strconv.Atoi(string(fields[17]))
	if err != nil {
		return 0
	}
	return n
}

// awaitEnd waits for the processes to end, until the deadline at most.
func awaitEnd(pidfds []int, deadline time.Time) {
	for _, fd := range pidfds {
		for {
			left := time.Until(deadline).Milliseconds()
			if left <= 0 {
				return
			}
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(poll, int(left)); err != unix.EINTR {
				break
			}
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
