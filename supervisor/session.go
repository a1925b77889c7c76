package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/procstat"
	"kurma.io/stager/spec"
)

// Session is a command that runs in an app beside its main process, and the
// processes it started that have not begun a session (setsid(2)) of their own.
// It ends with the app at the latest. Its methods may be called by
// several goroutines at once.
type Session struct {
	child spec.Running
	pid   int // the child's, and with it the session's number
	log   *slog.Logger
}

// Exec starts a command in an app while the app's main process runs. The errors are
// ErrNoApp, ErrNotRunning and *spec.ExecError, wrapped, or any other. Exec returns a
// few seconds after the main process's end at the latest, even when the start hangs. The caller
// closes its own files of stdio, and the terminal's master.
func (p *Supervisor) Exec(app string, cmd spec.Command, stdio spec.Stdio) (*Session, error) {
	a, err := p.find(app)
	if err != nil {
		return nil, err
	}
	r, err := a.running()
	if err != nil {
		return nil, err
	}
	session, err := r.exec(cmd, stdio)
	if err != nil {
		return nil, fmt.Errorf("start command in app %q: %w", app, err)
	}
	return session, nil
}

// exec is Exec for this run of the app, if the run has not ended.
func (r *run) exec(cmd spec.Command, stdio spec.Stdio) (*Session, error) {
	if !r.join() {
		return nil, ErrNotRunning
	}
	var child spec.Running
	var err error
	select {
	case s := <-r.startCommand(cmd, stdio):
		child, err = s.child, s.err
	case <-r.abandoned:
		err = ErrNotRunning
	}
	switch {
	case err != nil && closed(r.ended):
		return nil, ErrNotRunning
	case err != nil:
		return nil, err
	}
	return &Session{child: child, pid: child.PID(), log: r.app.pod.log}, nil
}

type startedCommand struct {
	child spec.Running
	err   error
}

// startCommand starts a command, for the session that join has added. A start that
// hangs holds a goroutine, not its caller; if it succeeds after that, the command is killed.
func (r *run) startCommand(cmd spec.Command, stdio spec.Stdio) <-chan startedCommand {
	started := make(chan startedCommand, 1)
	go func() {
		defer r.sessions.Done()
		start := func() (spec.Running, error) { return r.main.Exec(cmd, stdio) }
		child, err := r.app.pod.spawn(r.slots, spec.ExecLimit, r.ended, ErrNotRunning, start)
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

// running returns the app's run, if its main process runs.
func (a *app) running() (*run, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status.State != StateRunning {
		return nil, fmt.Errorf("app %q: %w", a.Name, ErrNotRunning)
	}
	return a.run, nil
}

// join adds a session to the run, unless the run has ended. Its container is not destroyed before the caller has called
// sessions.Done.
func (r *run) join() bool {
	r.app.mu.Lock()
	defer r.app.mu.Unlock()
	if closed(r.ended) {
		return false
	}
	r.sessions.Add(1)
	return true
}

// Done is closed when the command has ended; processes that it started may
// still run.
func (s *Session) Done() <-chan struct{} { return s.child.Done() }

// Exit is how the command ended. It may be called once Done is closed.
func (s *Session) Exit() Exit { return exitOf(s.child.Status()) }

// Signal sends a signal to the command. It returns os.ErrProcessDone when the command has ended.
func (s *Session) Signal(sig syscall.Signal) error { return s.child.Signal(sig) }

// Kill sends SIGKILL to the command and to every process of its session,
// until none is left or a few seconds have passed, which it logs.
func (s *Session) Kill() {
	deadline := time.Now().Add(killLimit)
	for {
		members, err := s.members()
		if len(members) == 0 && err == nil {
			return
		}
		if time.Now().After(deadline) {
			closePIDFDs(members)
			s.log.Error("processes of a command may survive SIGKILL", "session", s.pid, "seen", len(members), "error", err)
			return
		}
		for _, fd := range members {
			// It may have ended just now.
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		awaitEnd(members, deadline)
		closePIDFDs(members)
		if err != nil {
			time.Sleep(killInterval) // until there are descriptors again, for instance
		}
	}
}

// members returns pidfds (pidfd_open(2)) of the living processes of the session. After an error there may be
// others.
func (s *Session) members() (fds []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, e := strconv.Atoi(entry.Name())
		if e != nil {
			continue // not a process
		}
		fd, e := unix.PidfdOpen(pid, 0)
		if errors.Is(e, unix.ESRCH) {
			continue
		}
		if e != nil {
			err = cmp.Or(err, os.NewSyscallError("pidfd_open", e))
			continue
		}
		// The descriptor comes first. It holds the process, so the answer is about the
		// process that gets the signal, or about none.
		if session, e := sessionOf(pid); e != nil || session != s.pid {
			err = cmp.Or(err, e)
			_ = unix.Close(fd)
			continue
		}
		fds = append(fds, fd)
		if pid == s.pid && s.ended() {
			// A new session has the number: the old one has no member left.
			closePIDFDs(fds)
			return nil, nil
		}
	}
	return fds, err
}

func (s *Session) ended() bool { return errors.Is(s.child.Signal(0), os.ErrProcessDone) }

// sessionOf returns a living process's session, 0 for a zombie or where there is no process. An error says
// that it cannot look.
func sessionOf(pid int) (int, error) {
	stat, err := procstat.Read(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, nil
	}
	if err != nil || stat.Ended() {
		return 0, err
	}
	return stat.Session, nil
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

func closePIDFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
