package callins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
)

// defaultTerm is TERM for a command on a terminal if its caller names none.
const defaultTerm = "xterm"

// collectLimit bounds the wait for the end of a command that has been killed.
const collectLimit = time.Second

// endSignals are the signals of the caller that end an attach, and that ask a command to end.
var endSignals = []syscall.Signal{ //nolint:gochecknoglobals // a table that is only read
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
}

// serveRun returns the handler of requestRun for the pod: it starts a command,
// passes signals to it and reports how it ended. env returns the variables, NAME=value,
// that a command in app has unless its settings list the name: the app's environment. It may run concurrently with
// itself. Before a command starts, the app's commands without
// callers have been killed: a daemon that has killed a call-in meets no leftovers of its command.
func serveRun(pod *supervisor.Pod, env func(app string) []string) Handler {
	var calls runCalls
	return func(ctx context.Context, call *Call) error {
		lost, done := calls.add(call)
		defer done()
		for _, ended := range lost {
			<-ended
		}
		if hasGone(call.conn) {
			return nil // nobody waits for the command, who may have asked for it again
		}
		return runCommand(ctx, pod, env(call.request.App), call)
	}
}

// runCalls are the calls of run that are under way.
type runCalls struct {
	mu  sync.Mutex
	all map[*Call]chan struct{} // closed at the call's end; guarded by mu
}

// add adds a call until done. lost are the ends of its app's earlier calls without callers. They wait for
// none but earlier ones, so no two calls wait for each other.
func (r *runCalls) add(call *Call) (lost []<-chan struct{}, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, ended := range r.all {
		if other.request.App == call.request.App && hasGone(other.conn) {
			lost = append(lost, ended)
		}
	}
	if r.all == nil {
		r.all = make(map[*Call]chan struct{})
	}
	ended := make(chan struct{})
	r.all[call] = ended
	return lost, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, call)
		close(ended)
	}
}

// hasGone reports whether the caller has closed its end of the connection, as one that was killed has.
func hasGone(c conn) (gone bool) {
	_ = withDescriptor(c, func(fd int) error {
		at := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(at, 0)
		gone = err == nil && at[0].Revents&unix.POLLHUP != 0
		return err
	})
	return gone
}

func runCommand(ctx context.Context, pod *supervisor.Pod, defaults []string, call *Call) error {
	c := call.conn
	session, terminal, err := startCommand(pod, defaults, call)
	if err != nil {
		return sendError(c, execCode(err), err)
	}
	// The command's readers would never see end of file if copies stayed open here.
	call.packet.close()
	call.packet.files = nil
	if err := unlimited(c); err != nil {
		session.Kill()
		return err
	}
	killed, afterKill := context.WithCancel(context.Background())
	defer afterKill()
	stop := context.AfterFunc(ctx, func() { session.Kill(); afterKill() })
	defer stop()
	if err := tellStarted(c, terminal); err != nil {
		session.Kill()
		return err
	}
	go func() { passSignals(c, session); afterKill() }()
	if err := awaitEnd(killed, session); err != nil {
		return errors.Join(err, sendError(c, exitFailed, err))
	}
	err = sendReply(c, reply{Kind: kindExit, Code: session.Exit().Code}, nil)
	if hasGone(c) {
		<-killed.Done() // with what the command has left
	}
	return err
}

// awaitEnd waits for the command's end, and after its kill only so long as it takes to collect it: a process that
// another one traces (ptrace(2)), or that is in a frozen cgroup, stays, and may not keep the app's next commands
// waiting.
func awaitEnd(killed context.Context, session *supervisor.Session) error {
	select {
	case <-session.Done():
		return nil
	case <-killed.Done():
	}
	select {
	case <-session.Done():
		return nil
	case <-time.After(collectLimit):
		return errors.New("command does not end although it has been killed")
	}
}

// tellStarted reports that the command runs, passes its terminal, if any, to the caller
// and closes it here.
func tellStarted(c conn, terminal *os.File) error {
	if terminal == nil {
		return sendReply(c, reply{Kind: kindStarted}, nil)
	}
	defer terminal.Close()
	return sendReply(c, reply{Kind: kindTerminal}, []*os.File{terminal})
}

// startCommand starts the command of a call; with tty it also returns the terminal's
// master, which its caller closes.
func startCommand(pod *supervisor.Pod, defaults []string, call *Call) (*supervisor.Session, *os.File, error) {
	req, p := call.request, call.packet
	if len(p.files) == 0 {
		return nil, nil, errors.New("call without settings")
	}
	text, err := readSealed(p.files[0], maxSettings)
	if err != nil {
		return nil, nil, err
	}
	set, err := parseSettings(text)
	if err != nil {
		return nil, nil, err
	}
	var stdio spec.Stdio
	var console chan *os.File
	if set.TTY {
		console = make(chan *os.File, 1)
		stdio = spec.Stdio{Terminal: true, Width: req.Width, Height: req.Height, Console: console}
		defaults = append(defaults[:len(defaults):len(defaults)], "TERM="+termOf(req))
	} else if stdio, err = streamsOf(p.files[1:]); err != nil {
		return nil, nil, err
	}
	session, err := pod.Exec(req.App, set.command(defaults), stdio)
	if err != nil {
		closeConsole(console)
		return nil, nil, err
	}
	if console == nil {
		return session, nil, nil
	}
	return session, <-console, nil
}

// streamsOf returns a command's streams: pipes, which the caller has made for it, and the app's own null device for a
// null device. Another file is refused, because a process can open again, with other access, what it holds.
func streamsOf(files []*os.File) (stdio spec.Stdio, err error) {
	streams := []**os.File{&stdio.Stdin, &stdio.Stdout, &stdio.Stderr}
	if len(files) != len(streams) {
		return stdio, fmt.Errorf("call with %d streams, want stdin, stdout and stderr", len(files))
	}
	for i, f := range files {
		info, err := f.Stat()
		switch {
		case err != nil:
			return stdio, fmt.Errorf("look at descriptor %d of the command: %w", i, err)
		case info.Mode().Type() == os.ModeNamedPipe:
			*streams[i] = f
		case !isNull(f):
			return stdio, fmt.Errorf("descriptor %d of the command is neither a pipe nor the null device", i)
		}
	}
	return stdio, nil
}

// closeConsole closes the master that a failed start may have left.
func closeConsole(console <-chan *os.File) {
	select {
	case master := <-console:
		master.Close()
	default:
	}
}

func termOf(req request) string {
	if req.Term == "" || strings.ContainsRune(req.Term, 0) {
		return defaultTerm
	}
	return req.Term
}

// passSignals passes the caller's signals to the command. One that asks it to end also continues it: an app of user 0
// can have stopped it, and a stopped process takes no signal but SIGKILL. passSignals kills the session when
// the caller goes, or sends an invalid note, before the command has ended.
func passSignals(c conn, session *supervisor.Session) {
	for {
		var n note
		p, err := c.receive(&n)
		p.close()
		if err != nil || !slices.Contains(forwarded, os.Signal(syscall.Signal(n.Signal))) {
			break
		}
		// It may have ended just now.
		sig := syscall.Signal(n.Signal)
		_ = session.Signal(sig)
		if slices.Contains(endSignals, sig) {
			_ = session.Signal(syscall.SIGCONT)
		}
	}
	select {
	case <-session.Done():
	default:
		session.Kill()
	}
}

// execCode returns the exit code of run for a command that did not start.
func execCode(err error) int {
	if exec, ok := errors.AsType[*spec.ExecError](err); ok {
		return exec.ExitCode()
	}
	return exitFailed
}
