package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/output"
)

// postStopLimit bounds the post-stop handler, within the pod's stop.
const postStopLimit = 10 * time.Second

// handlerError reports an event handler that did not exit 0.
type handlerError struct {
	name string
	exit Exit
}

func (e *handlerError) Error() string {
	if e.exit.Reason != "" {
		return e.name + " handler " + e.exit.Reason
	}
	return fmt.Sprintf("%s handler exited %d", e.name, e.exit.Code)
}

// handle runs an event handler, nil for none, until it ends by itself or end ends it. name
// is for errors.
func (r *run) handle(name string, handler func() (spec.Container, error), end stop) error {
	if handler == nil {
		return nil
	}
	exit, err := r.runHandler(handler, end)
	if err != nil {
		return fmt.Errorf("%s handler: %w", name, err)
	}
	if exit.Code != 0 {
		return &handlerError{name: name, exit: exit}
	}
	return nil
}

// runHandler runs a handler until it ends by itself or the moments of end come. It does
// not start the handler after the first of them.
func (r *run) runHandler(handler func() (spec.Container, error), end stop) (Exit, error) {
	a := r.app
	streams, err := a.pod.output.Open(a.handlerOutput())
	if err != nil {
		return Exit{}, fmt.Errorf("open output: %w", err)
	}
	defer func() { a.passLast(finishing(streams)) }()
	c, child, err := a.pod.launch(handler, stdioOf(streams), end)
	if c != nil {
		defer a.destroy(c)
	}
	if err != nil {
		return Exit{}, err
	}
	streams.Started()
	_, err = waitChild(child, c, end, syscall.SIGTERM)
	if killErr := killUntilEmpty(c, child.Done()); err == nil && killErr != nil {
		err = fmt.Errorf("kill processes left by the handler: %w", killErr)
	}
	if err != nil {
		return Exit{}, err
	}
	return exitOf(child.Status()), nil
}

// handlerOutput are the streams of the app's event handlers: its log, and no input.
func (a *app) handlerOutput() output.Options {
	return output.Options{Stdout: a.Stdout, Stderr: a.Stderr, LogError: func(err error) {
		a.pod.log.Error("write log", "app", a.Name, "error", err)
	}}
}
