package callins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit codes of the call-ins, beside the exit codes of a command or app.
const (
	exitFailed   = 125 // run and attach could not be done
	exitDropped  = 124 // attach: the caller did not read
	exitDocument = 1   // the supervisor did not answer with the document
)

// answerTime is the limit, on both sides, for each step that does not wait for an app:
// accepting a connection, reading a request, sending a reply.
const answerTime = 10 * time.Second

// CallIn is a call-in on its caller's side. args are its arguments, without its name. It returns
// nil for success, an *ExitError that says how the program is to end, or another
// error, for exit code 1, that begins with the call-in's name.
type CallIn func(ctx context.Context, s Streams, args []string) error

// Streams are the descriptors and the socket that a call-in works on. It closes Settings
// and nothing else.
type Streams struct {
	Socket                string // the supervisor's socket, names.ControlSocket unless a test has its own
	Stdin, Stdout, Stderr *os.File
	Settings              int // the number of run's settings descriptor: 3, unless a test has its own
	// Begun, unless nil, is the connection of a call of run that another client has begun and cannot end (package plain):
	// the next packet ends it, or none comes in time.
	Begun *os.File
	// Ended is the signal that has ended a call of run, if it was Begun, before its command ran; 0 for none.
	Ended syscall.Signal
}

// ExitError says how the program is to end: with Code, after Err's text on stderr
// if Err is not nil. The text begins with the call-in's name.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// exit returns a call-in's result: nil for success, otherwise an *ExitError.
func exit(name string, code int, err error) error {
	if err != nil {
		return &ExitError{Code: code, Err: fmt.Errorf("%s: %w", name, err)}
	}
	if code != 0 {
		return &ExitError{Code: code}
	}
	return nil
}

// oneApp returns the argument of run, attach and restart.
func oneApp(args []string) (string, error) {
	if len(args) != 1 || args[0] == "" {
		return "", fmt.Errorf("want one argument, the app's name, have %d", len(args))
	}
	return args[0], nil
}

// dial connects to the supervisor. The connection is closed when ctx ends.
func dial(ctx context.Context, socket string) (conn, error) {
	dialer := net.Dialer{Timeout: answerTime}
	c, err := dialer.DialContext(ctx, "unixpacket", socket)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return conn{}, fmt.Errorf("the pod is not running: %w", err)
	case err != nil:
		return conn{}, fmt.Errorf("reach the pod's supervisor: %w", err)
	}
	packets := conn{c.(*net.UnixConn)}
	context.AfterFunc(ctx, func() { packets.Close() })
	return packets, nil
}

// ask sends a request. A supervisor that has closed the connection has sent the
// reason first, which next returns.
func (c conn) ask(req request, files ...*os.File) error {
	if err := c.send(req, files); !errors.Is(err, unix.EPIPE) {
		return err
	}
	return nil
}

// next receives a reply of one of the kinds. A reply of kind error is returned as a
// *remoteError; the end of the connection is also an error.
func (c conn) next(kinds ...kind) (reply, packet, error) {
	var r reply
	p, err := c.receive(&r)
	switch {
	case errors.Is(err, io.EOF):
		return r, p, errors.New("the pod's supervisor has gone")
	case err != nil:
		return r, p, err
	case r.Kind == kindError:
		p.close()
		return r, packet{}, &remoteError{code: r.Code, message: r.Message}
	case !slices.Contains(kinds, r.Kind):
		p.close()
		return r, packet{}, fmt.Errorf("the supervisor sent %q, want %q", r.Kind, kinds)
	}
	return r, p, nil
}

// remoteError is a reply of kind error.
type remoteError struct {
	code    int
	message string
}

func (e *remoteError) Error() string { return e.message }

// codeOf returns the exit code for an error of run or attach.
func codeOf(err error) int {
	if remote, ok := errors.AsType[*remoteError](err); ok && remote.code > 0 && remote.code <= 255 {
		return remote.code
	}
	return exitFailed
}
