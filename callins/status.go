package callins

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxDocument bounds a document for the user, in bytes.
const maxDocument = 16 << 20

// Status is the call-in status: it writes one JSON object to Stdout, with the apps
// in the pod's order (stager specification, status), or, with the arguments
// --isolators APP, what became of the app's isolators. An error is an *ExitError.
func Status(ctx context.Context, s Streams, args []string) error {
	text, err := status(ctx, s, args)
	if err == nil {
		_, err = s.Stdout.Write(text)
	}
	if err != nil {
		return exit("status", exitStatus, err)
	}
	return nil
}

func status(ctx context.Context, s Streams, args []string) ([]byte, error) {
	req := request{Version: protocolVersion, Call: callStatus}
	switch {
	case len(args) == 0:
	case len(args) == 2 && args[0] == "--isolators":
		req.Call, req.App = callIsolators, args[1]
	default:
		return nil, fmt.Errorf("unknown arguments %q, want none or --isolators APP", args)
	}
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
	if err := c.ask(req); err != nil {
		return nil, err
	}
	if req.Call == callIsolators {
		return receiveDocument(c)
	}
	return receiveStatus(c)
}

func receiveDocument(c conn) ([]byte, error) {
	_, p, err := c.next(kindDocument)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if len(p.files) != 1 {
		return nil, fmt.Errorf("the supervisor sent %d documents, want 1", len(p.files))
	}
	return readSealed(p.files[0], maxDocument)
}

// appState is one app in the output of status.
type appState struct {
	PID        int    `json:"pid,omitempty"`
	Exited     bool   `json:"exited"`
	Ending     bool   `json:"ending,omitempty"` // between the two, for a moment
	ExitCode   *int   `json:"exitCode,omitempty"`
	ExitReason string `json:"exitReason,omitempty"`
}

func receiveStatus(c conn) ([]byte, error) {
	object := bytes.NewBufferString("{")
	for n := 0; ; n++ {
		r, p, err := c.next(kindApp, kindEnd)
		if err != nil {
			return nil, err
		}
		p.close()
		if r.Kind == kindEnd {
			break
		}
		if n > 0 {
			object.WriteByte(',')
		}
		if err := appendMember(object, r.App, stateOf(r, p.pid)); err != nil {
			return nil, err
		}
	}
	object.WriteByte('}')
	var text bytes.Buffer
	if err := json.Indent(&text, object.Bytes(), "", "\t"); err != nil {
		return nil, err
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
}

// stateOf is an app as the user sees it. The PID is 0, and left out, where the
// caller's PID namespace does not have the app.
func stateOf(r reply, pid int) appState {
	state := appState{Exited: r.Exited, Ending: r.Ending}
	if r.Running {
		state.PID = pid
	}
	if r.Exited {
		state.ExitCode, state.ExitReason = &r.Code, r.Reason
	}
	return state
}

func appendMember(object *bytes.Buffer, name string, value any) error {
	key, err := json.Marshal(name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	object.Write(key)
	object.WriteByte(':')
	object.Write(text)
	return nil
}
