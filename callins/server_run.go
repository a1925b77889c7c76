package callins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"kurma.io/stager/supervisor"
)

// defaultTerm is TERM for a command on a terminal whose caller names none.
const defaultTerm = "xterm"

// run starts a command and stays with it to its end.
func (s *Server) run(ctx context.Context, c conn, req request, p *packet) error {
	session, terminal, err := s.start(req, p)
	if err != nil {
		return sendError(c, execCode(err), err)
	}
	// Without this the command's readers would never see end of file.
	p.close()
	p.files = nil
	if err := unlimited(c); err != nil {
		session.Kill()
		return err
	}
	stop := context.AfterFunc(ctx, session.Kill)
	defer stop()
	if err := tellStarted(c, terminal); err != nil {
		session.Kill()
		return err
	}
	go obey(c, session)
	<-session.Done()
	return sendReply(c, reply{Kind: kindExit, Code: session.Exit().Code}, nil)
}

// tellStarted hands on the terminal of a command that has one, and closes it.
func tellStarted(c conn, terminal *os.File) error {
	if terminal == nil {
		return sendReply(c, reply{Kind: kindStarted}, nil)
	}
	defer terminal.Close()
	return sendReply(c, reply{Kind: kindTerminal}, []*os.File{terminal})
}

// start starts the command of a request; with tty it also returns the terminal's
// master, which the caller closes.
func (s *Server) start(req request, p *packet) (*supervisor.Session, *os.File, error) {
	if len(p.files) != 4 {
		return nil, nil, fmt.Errorf("call with %d descriptors, want settings, stdin, stdout and stderr", len(p.files))
	}
	text, err := readSealed(p.files[0], maxSettings)
	if err != nil {
		return nil, nil, err
	}
	set, err := parseSettings(text)
	if err != nil {
		return nil, nil, err
	}
	stdio := supervisor.Stdio{Stdin: p.files[1], Stdout: p.files[2], Stderr: p.files[3]}
	defaults := s.Env(req.App)
	var console chan *os.File
	if set.TTY {
		console = make(chan *os.File, 1)
		stdio = supervisor.Stdio{Terminal: true, Width: req.Width, Height: req.Height, Console: console}
		defaults = append(defaults[:len(defaults):len(defaults)], "TERM="+termOf(req))
	}
	session, err := s.Pod.Exec(req.App, set.command(defaults), stdio)
	if err != nil {
		closeConsole(console)
		return nil, nil, err
	}
	if console == nil {
		return session, nil, nil
	}
	return session, <-console, nil
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

// obey passes on the caller's signals, and kills the session when the caller goes,
// or says what makes no sense, before the command has ended.
func obey(c conn, session *supervisor.Session) {
	for {
		var n note
		p, err := c.receive(&n)
		p.close()
		if err != nil || !mayForward(n.Signal) {
			break
		}
		// It may have ended just now.
		_ = session.Signal(syscall.Signal(n.Signal))
	}
	select {
	case <-session.Done():
	default:
		session.Kill()
	}
}

// execCode is the exit code of run for a command that did not start.
func execCode(err error) int {
	var exec *supervisor.ExecError
	if errors.As(err, &exec) {
		return exec.ExitCode()
	}
	return exitFailed
}
