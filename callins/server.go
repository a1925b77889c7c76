package callins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
)

const (
	// maxCalls is how many calls are under way at once; more wait to be accepted.
	maxCalls = 1024
	// acceptPause is the wait after an accept that failed for want of descriptors.
	acceptPause = 50 * time.Millisecond
	// maxMessage bounds an error's text in bytes.
	maxMessage = 1 << 10
)

// Server answers the call-ins of one pod. Its fields are set before Serve.
type Server struct {
	Pod *supervisor.Pod

	// Env returns what a command of run in app has in its environment unless its
	// settings list the name: PATH, AC_APP_NAME, AC_METADATA_URL, container; NAME=value.
	Env func(app string) []string

	// Isolators returns what became of app's isolators, to be written as JSON;
	// false where there is no such app.
	Isolators func(app string) (any, bool)

	Log *slog.Logger
}

// Listen makes the supervisor's socket, mode 0600, in place of one that a
// former supervisor left. The caller closes it.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// The mode of the unbound socket becomes that of the file (unix(7)), so
	// nobody else can connect, not even for a moment.
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var inner error
		err := raw.Control(func(fd uintptr) { inner = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, inner)
	}}
	listener, err := config.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen for call-ins: %w", err)
	}
	return listener.(*net.UnixListener), nil
}

// Serve answers calls until ctx ends; then it closes the listener, kills the
// commands that run, tells their callers, and returns when no call is left.
// It returns an error only when the listener fails otherwise. For callers of attach to see
// how their apps end, ctx is to end after the apps have.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	slots := make(chan struct{}, maxCalls)
	for {
		slots <- struct{}{}
		c, err := listener.AcceptUnix()
		switch {
		case err == nil:
			calls.Go(func() {
				defer func() { <-slots }()
				s.serve(ctx, conn{c})
			})
			continue
		case ctx.Err() != nil:
			return nil
		case !shortage(err):
			return fmt.Errorf("accept call-in: %w", err)
		}
		<-slots
		s.Log.Warn("cannot accept call-in", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(acceptPause):
		}
	}
}

// shortage tells errors of accept(2) that pass.
func shortage(err error) bool {
	for _, errno := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// serve answers one call and closes the connection.
func (s *Server) serve(ctx context.Context, c conn) {
	defer c.Close()
	if err := s.answer(ctx, c); err != nil {
		s.Log.Debug("call-in ended early", "error", err)
	}
}

// answer returns an error when the caller did not get its answer.
func (s *Server) answer(ctx context.Context, c conn) error {
	if err := checkPeer(c); err != nil {
		return errors.Join(err, sendError(c, exitFailed, err))
	}
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return fmt.Errorf("limit request: %w", err)
	}
	hurry := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	var req request
	p, err := c.receive(&req)
	hurry()
	if err != nil {
		return errors.Join(err, sendError(c, exitFailed, err))
	}
	defer p.close()
	if req.Version != protocolVersion {
		return sendError(c, exitFailed, fmt.Errorf("unknown protocol version %d, want %d", req.Version, protocolVersion))
	}
	switch req.Call {
	case callStatus:
		return s.status(c)
	case callIsolators:
		return s.isolators(c, req)
	case callRun:
		return s.run(ctx, c, req, &p)
	case callAttach:
		return s.attach(ctx, c, req)
	}
	return sendError(c, exitFailed, fmt.Errorf("unknown call %q", req.Call))
}

// checkPeer lets root in only: a socket may have been passed on to somebody else.
func checkPeer(c conn) error {
	return withDescriptor(c, func(fd int) error {
		peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return fmt.Errorf("identify caller: %w", err)
		}
		if peer.Uid != 0 {
			return fmt.Errorf("caller has user ID %d, want 0", peer.Uid)
		}
		return nil
	})
}

// sendReply sends r within answerTime: a caller that does not read is given up.
func sendReply(c conn, r reply, files []*os.File, control ...byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return fmt.Errorf("limit reply: %w", err)
	}
	return c.send(r, files, control...)
}

// sendError tells the caller why it gets nothing else.
func sendError(c conn, code int, err error) error {
	text := err.Error()
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return sendReply(c, reply{Kind: kindError, Code: code, Message: text}, nil)
}
