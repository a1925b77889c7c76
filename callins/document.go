package callins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxDocument bounds a document in bytes.
const maxDocument = 16 << 20

// PrintDocument returns the call-in that asks the supervisor for the document
// request with its own arguments, and writes it to Stdout. On the supervisor's
// side, ServeDocument answers it under the same name. An error is an
// *ExitError with Code 1 that begins with the name.
func PrintDocument(request string) CallIn {
	return func(ctx context.Context, s Streams, args []string) error {
		return printDocument(ctx, s, request, request, args)
	}
}

// printDocument is the call-in name, which asks for the document request.
func printDocument(ctx context.Context, s Streams, name, request string, args []string) error {
	text, err := askDocument(ctx, s, request, args...)
	if err == nil {
		_, err = s.Stdout.Write(text)
	}
	if err != nil {
		return exit(name, exitDocument, err)
	}
	return nil
}

// askDocument asks the supervisor for the document name and returns it: JSON,
// indented by tabs, with a newline at its end. Of s it uses the socket only. The name
// and the arguments must fit into a packet, of 16 KiB. The text of an error of the
// document's handler is the handler's own.
func askDocument(ctx context.Context, s Streams, name string, args ...string) ([]byte, error) {
	c, err := dial(ctx, s.Socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	err = withDescriptor(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err != nil {
		return nil, fmt.Errorf("ask for credentials: %w", err)
	}
	if err := c.ask(request{Version: protocolVersion, Call: name, Args: args}); err != nil {
		return nil, err
	}
	for {
		r, p, err := c.next(kindProcess, kindDocument)
		if err != nil {
			return nil, err
		}
		if r.Kind == kindDocument {
			return readDocument(p)
		}
		p.close()
		if err := c.send(note{Process: p.pid}, nil); err != nil {
			return nil, err
		}
	}
}

func readDocument(p packet) ([]byte, error) {
	defer p.close()
	if len(p.files) != 1 {
		return nil, fmt.Errorf("the supervisor sent %d documents, want 1", len(p.files))
	}
	return readSealed(p.files[0], maxDocument)
}

// ServeDocument returns the handler that answers PrintDocument with what document
// returns, as JSON. document may run concurrently with itself. Its error, which is to be
// one line, becomes the call-in's.
func ServeDocument(document func(ctx context.Context, call *Call) (any, error)) Handler {
	return func(ctx context.Context, call *Call) error {
		content, err := document(ctx, call)
		if err != nil {
			return sendError(call.conn, exitDocument, err)
		}
		file, err := encodeDocument(call.request.Call, content)
		if err != nil {
			return sendError(call.conn, exitDocument, err)
		}
		defer file.Close()
		return sendReply(call.conn, reply{Kind: kindDocument}, []*os.File{file})
	}
}

func encodeDocument(name string, content any) (*os.File, error) {
	text, err := json.MarshalIndent(content, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	return sealed(name, append(text, '\n'))
}

// Args returns the arguments of the call-in that PrintDocument returned.
func (c *Call) Args() []string { return c.request.Args }

// Process returns the number that the process pid of the supervisor's PID
// namespace has in the caller's: 0 if it has none there. Only the kernel knows: it
// translates the number on the way to the caller (SCM_CREDENTIALS, unix(7)), who
// sends it back. For the handlers of ServeDocument only, one call at a time. The
// error wraps ESRCH if there is no such process.
func (c *Call) Process(ctx context.Context, pid int) (int, error) {
	credentials := unix.Ucred{Pid: int32(pid), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
	// To name another process takes CAP_SYS_ADMIN (unix(7)).
	if err := sendReply(c.conn, reply{Kind: kindProcess}, nil, unix.UnixCredentials(&credentials)...); err != nil {
		return 0, err
	}
	var n note
	p, err := receiveSoon(ctx, c.conn, &n)
	if err != nil {
		return 0, fmt.Errorf("learn number of process: %w", err)
	}
	p.close()
	if n.Process < 0 {
		return 0, errors.New("learn number of process: the caller sent a negative number")
	}
	return n.Process, nil
}

// member is one member of an ordered object.
type member struct {
	Key   string
	Value any
}

// orderedObject is a JSON object that keeps the order of its members.
type orderedObject []member

// MarshalJSON implements json.Marshaler.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	text := bytes.NewBufferString("{")
	for i, m := range o {
		if i > 0 {
			text.WriteByte(',')
		}
		key, _ := json.Marshal(m.Key) // every string has a form in JSON
		value, err := json.Marshal(m.Value)
		if err != nil {
			return nil, err
		}
		text.Write(key)
		text.WriteByte(':')
		text.Write(value)
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}
