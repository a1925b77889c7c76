package callins

import (
	"context"
	"errors"
	"os"
	"time"

	"kurma.io/stager/supervisor"
)

// lastWords is how long the server, when it stops, waits for a caller to read the last
// output of its app.
const lastWords = time.Second

// serveAttach is the handler of requestAttach for the pod: it hands an app's
// streams to the caller and reports how the app ended.
func serveAttach(ctx context.Context, pod *supervisor.Supervisor, call *Call) error {
	c := call.conn
	a, err := pod.Attach(call.request.App)
	if err != nil {
		return sendError(c, exitFailed, err)
	}
	defer a.Close()
	if err := unlimited(c); err != nil {
		return err
	}
	a.IgnoreOutput(call.request.NoOut, call.request.NoErr)
	if call.request.Input {
		a.HasInput()
	}
	if err := sendStreams(c, a); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-a.Done():
		case <-time.After(lastWords):
			a.Close()
		}
	})
	defer stop()
	go followSize(c, a)
	<-a.Done()
	switch err := a.Err(); {
	case err == nil:
		return sendReply(c, reply{Kind: kindExit, Code: a.Exit().Code}, nil)
	case errors.Is(err, supervisor.ErrDropped):
		return sendReply(c, reply{Kind: kindDropped}, nil)
	default:
		return sendError(c, exitFailed, err)
	}
}

// sendStreams passes the streams to the caller and closes them here, so that the pod
// sees a closed pipe when the caller goes.
func sendStreams(c conn, a *supervisor.Attachment) error {
	files := []*os.File{a.Stdout}
	for _, f := range []*os.File{a.Stderr, a.Stdin} {
		if f != nil {
			files = append(files, f)
		}
	}
	r := reply{Kind: kindStreams, Terminal: a.Terminal, Stderr: a.Stderr != nil, Stdin: a.Stdin != nil}
	err := sendReply(c, r, files)
	for _, f := range files {
		f.Close()
	}
	return err
}

// followSize keeps the app's terminal at the caller's size. When the caller goes, or
// sends an invalid note, it ends the attachment.
func followSize(c conn, a *supervisor.Attachment) {
	defer a.Close()
	for {
		var n note
		p, err := c.receive(&n)
		p.close()
		if err != nil || n.Width == 0 || n.Height == 0 {
			return
		}
		// An app that has just ended has lost its terminal.
		_ = a.Resize(n.Width, n.Height)
	}
}
