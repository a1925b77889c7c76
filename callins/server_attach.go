package callins

import (
	"context"
	"errors"
	"os"
	"time"

	"kurma.io/stager/supervisor"
)

// lastWords is how long a stop of the server waits for a caller to take what its app
// wrote last.
const lastWords = time.Second

// attach hands an app's streams to the caller and tells it how they end.
func (s *Server) attach(ctx context.Context, c conn, req request) error {
	a, err := s.Pod.Attach(req.App)
	if err != nil {
		return sendError(c, exitFailed, err)
	}
	defer a.Close()
	if err := unlimited(c); err != nil {
		return err
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
	go heed(c, a)
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

// sendStreams passes the streams on and closes them here, so that a caller
// that goes away is a closed pipe to the pod.
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

// heed sets the terminal to the caller's size, until the caller goes or says
// what makes no sense: then the attachment ends.
func heed(c conn, a *supervisor.Attachment) {
	defer a.Close()
	for {
		var n note
		p, err := c.receive(&n)
		p.close()
		if err != nil || n.Width == 0 || n.Height == 0 {
			return
		}
		// An app that has just ended has no terminal any more.
		_ = a.Resize(n.Width, n.Height)
	}
}
