package supervisor

import (
	"errors"
	"fmt"

	"kurma.io/stager/supervisor/output"
)

// ErrDropped is the Err of an Attachment that read the app's output too slowly: an app
// never waits for an attachment.
var ErrDropped = output.ErrDropped

// Attachment is a connection to an app's streams, for one run of the app.
type Attachment struct {
	*output.Attachment
	run *run
}

// Exit is how the app's run ended. It is known once Done is closed and Err is nil.
func (a *Attachment) Exit() Exit {
	a.run.app.mu.Lock()
	defer a.run.app.mu.Unlock()
	return a.run.exit
}

// HasInput says that Stdin will be written to.
func (a *Attachment) HasInput() {
	if a.run.app.StdinOnce {
		a.EndInput()
	}
}

// Attach connects to an app that starts or runs. The errors are ErrNoApp and
// ErrNotRunning, wrapped, or any other.
func (p *Supervisor) Attach(name string) (*Attachment, error) {
	app, err := p.find(name)
	if err != nil {
		return nil, err
	}
	app.mu.Lock()
	r := app.run
	app.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("app %q: %w", name, ErrNotRunning)
	}
	a, err := r.streams.Attach()
	if errors.Is(err, output.ErrEnded) {
		err = ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("attach to app %q: %w", name, err)
	}
	return &Attachment{Attachment: a, run: r}, nil
}
