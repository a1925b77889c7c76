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
)

const (
	// maxCalls is how many calls are under way at once; more wait to be accepted.
	maxCalls = 1024
	// acceptPause is the wait after an accept that failed, as when descriptors ran out.
	acceptPause = 50 * time.Millisecond
	// maxMessage bounds an error's text in bytes.
	maxMessage = 1 << 10
)

// Server answers the call-ins of one pod. Its fields are set before Serve.
type Server struct {
	// Handlers are by the name of the request that each answers.
	Handlers map[string]Handler

	Log *slog.Logger
}

// Handler answers one call, on a goroutine of its own; the Server closes the
// connection afterwards. A request that it refuses, it answers with the reason; it
// returns an error if the caller could not be answered. Once ctx is done it must return within
// seconds: the pod's end waits for it.
type Handler func(ctx context.Context, call *Call) error

// Call is a request that a Handler answers. A document's function takes Args and
// Process from it; a handler of this package takes the connection itself.
type Call struct {
	conn    conn
	request request
	packet  packet // came with the request; the Server closes it after the Handler
}

// Listen makes the supervisor's socket, mode 0600, in place of one that a
// former supervisor left. The caller closes it.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// The mode of the unbound socket becomes that of the file (unix(7)), so no
	// other user can connect, not even for a moment.
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

// Serve answers calls until ctx ends, and logs an accept that fails. Then it closes the listener, kills the commands
// that run, reports that to their callers, and returns when no call is left. ctx must end after the apps, for callers
// of attach to see how their apps end.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	slots := make(chan struct{}, maxCalls)
	for {
		slots <- struct{}{}
		c, err := listener.AcceptUnix()
		if err == nil {
			calls.Go(func() {
				defer func() { <-slots }()
				s.serve(ctx, conn{c})
			})
			continue
		}
		if ctx.Err() != nil {
			return
		}
		<-slots
		s.Log.Warn("cannot accept call-in", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(acceptPause):
		}
	}
}

// serve answers one call and closes the connection.
func (s *Server) serve(ctx context.Context, c conn) {
	defer c.Close()
	if err := s.answer(ctx, c); err != nil {
		s.Log.Debug("call-in ended early", "error", err)
	}
}

// answer returns an error if the caller did not get its answer.
func (s *Server) answer(ctx context.Context, c conn) error {
	if err := checkPeer(c); err != nil {
		return errors.Join(err, sendError(c, exitFailed, err))
	}
	call := &Call{conn: c}
	var err error
	if call.packet, err = receiveSoon(ctx, c, &call.request); err != nil {
		return errors.Join(err, sendError(c, exitFailed, err))
	}
	defer func() { call.packet.close() }()
	if version := call.request.Version; version != protocolVersion {
		return sendError(c, exitFailed, fmt.Errorf("unknown protocol version %d, want %d", version, protocolVersion))
	}
	handler, ok := s.Handlers[call.request.Call]
	if !ok {
		return sendError(c, exitFailed, fmt.Errorf("unknown call %q", call.request.Call))
	}
	return handler(ctx, call)
}

// receiveSoon receives one packet, within answerTime and before ctx ends.
func receiveSoon(ctx context.Context, c conn, msg any) (packet, error) {
	if err := c.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return packet{}, fmt.Errorf("limit request: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return c.receive(msg)
}

// unlimited lets the caller of a call take as long as it likes from now on.
func unlimited(c conn) error {
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift limit of request: %w", err)
	}
	return nil
}

// checkPeer lets only root in: another user may have been passed an open socket.
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

// sendReply sends r within answerTime, and gives up a caller that does not read.
func sendReply(c conn, r reply, files []*os.File, control ...byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return fmt.Errorf("limit reply: %w", err)
	}
	return c.send(r, files, control...)
}

// sendError tells the caller why it gets no answer, and the exit code of the call-in.
func sendError(c conn, code int, err error) error {
	text := err.Error()
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return sendReply(c, reply{Kind: kindError, Code: code, Message: text}, nil)
}
