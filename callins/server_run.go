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
func serveRun(pod *supervisor.Supervisor, env func(app string) []string) Handler {
	calls := runCalls{buffers: sync.Pool{New: func() any { return new([carrySize]byte) }}}
	return func(ctx context.Context, call *Call) error {
		lost, done := calls.add(call)
		defer done()
		for _, ended := range lost {
			<-ended
		}
		if hasGone(call.conn) {
			return nil // nobody waits for the command, who may have asked for it again
		}
		if app := call.request.App; calls.hasManyLocked(app) {
			err := fmt.Errorf("app %q: processes have locked the streams of %d ended commands", app, maxLocked)
			return sendError(call.conn, exitFailed, err)
		}
		return calls.run(ctx, pod, env(call.request.App), call)
	}
}

// runCalls are the calls of run that are under way.
type runCalls struct {
	buffers sync.Pool // of *[carrySize]byte

	mu     sync.Mutex
	all    map[*Call]chan struct{} // closed at the call's end; guarded by mu
	locked map[string]int          // guarded by mu; by app, the ended commands with a stream that a process has locked
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

// countLocked counts an ended command until it has no stream that a process has locked.
func (r *runCalls) countLocked(app string, streams *carriers) {
	late := time.After(heldLimit)
	for _, c := range streams.all() {
		select {
		case <-c.gone:
			continue
		case <-late:
		}
		r.addLocked(app, 1)
		streams.awaitGone()
		r.addLocked(app, -1)
		return
	}
}

func (r *runCalls) addLocked(app string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locked == nil {
		r.locked = make(map[string]int)
	}
	r.locked[app] += n
}

func (r *runCalls) hasManyLocked(app string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.locked[app] >= maxLocked
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

func (r *runCalls) run(ctx context.Context, pod *supervisor.Supervisor, defaults []string, call *Call) error {
	c := call.conn
	session, streams, err := r.startCommand(pod, defaults, call)
	if err != nil {
		return sendError(c, execCode(err), err)
	}
	defer func() { go r.countLocked(call.request.App, streams) }()
	if err := unlimited(c); err != nil {
		session.Kill()
		return err
	}
	killed, afterKill := context.WithCancel(context.Background())
	defer afterKill()
	stop := context.AfterFunc(ctx, func() { session.Kill(); afterKill() })
	defer stop()
	if err := sendReply(c, reply{Kind: kindStarted}, nil); err != nil {
		session.Kill()
		return err
	}
	go func() { passNotes(c, session, streams); afterKill() }()
	if err := awaitEnd(killed, session); err != nil {
		return errors.Join(err, sendError(c, exitFailed, err))
	}
	err = sendReply(c, reply{Kind: kindExit, Code: session.Exit().Code}, nil)
	if hasGone(c) {
		<-killed.Done() // with what the command has left
	}
	if lost := streams.finish(ctx); lost != nil {
		err = errors.Join(err, sendError(c, exitFailed, lost))
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

// startCommand starts the command of a call, and the copying of its streams.
func (r *runCalls) startCommand(
	pod *supervisor.Supervisor, defaults []string, call *Call,
) (*supervisor.Session, *carriers, error) {
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
	if set.TTY {
		defaults = append(defaults[:len(defaults):len(defaults)], "TERM="+termOf(req))
	}
	streams, err := newCarriers(p.files[1:], set.TTY, &r.buffers)
	if err != nil {
		return nil, nil, err
	}
	// A pipe of the caller ends with its last copy.
	p.close()
	call.packet.files = nil
	streams.stdio.Width, streams.stdio.Height = req.Width, req.Height
	session, err := pod.Exec(req.App, set.command(defaults), streams.stdio)
	if err != nil {
		streams.discard()
		return nil, nil, err
	}
	if err := streams.start(); err != nil {
		session.Kill()
		return nil, nil, err
	}
	return session, streams, nil
}

func termOf(req request) string {
	if req.Term == "" || strings.ContainsRune(req.Term, 0) {
		return defaultTerm
	}
	return req.Term
}

// passNotes passes the caller's signals to the command, and its sizes to the command's terminal. A signal that asks the
// command to end also continues it: an app of user 0 can have stopped it, and a stopped process takes no signal but
// SIGKILL. passNotes kills the session when the caller goes, or sends an invalid note, before the command has ended.
func passNotes(c conn, session *supervisor.Session, streams *carriers) {
	for {
		var n note
		p, err := c.receive(&n)
		p.close()
		if err == nil && n.Width != 0 && n.Height != 0 {
			streams.setSize(n.Width, n.Height)
			continue
		}
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
