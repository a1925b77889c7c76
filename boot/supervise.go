package boot

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"kurma.io/stager/supervisor"
)

// Supervise is the main function of a stager's process: it runs the pod as Run does, until the pod's end or a signal by
// which the daemon asks for it: SIGTERM, SIGINT or SIGQUIT. The log goes to stderr. parts returns the parts that the
// caller chooses, which may use the log; Supervise adds Log and LimitLog, and closes Init.
func Supervise(ctx context.Context, parts func(*slog.Logger) Parts, steps []Step) (code int, err error) {
	messages := supervisor.NewMessages(os.Stderr) // if the reader of stderr stops reading, the pod must not stop
	defer messages.Close()
	log := slog.New(slog.NewTextHandler(messages, nil))
	p := parts(log)
	p.Log, p.LimitLog = log, messages.Limit
	ctx, release := supervisor.CatchSignals(ctx)
	defer release()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		<-p.Init.Lost()
		stop(errNoInit)
		_ = p.Runtime.KillPod() // of a pod in the host's PID namespace; the kernel kills any other
	}()
	over := make(chan struct{})
	// On another goroutine, because this one has the process's first thread (package pid1): each of its waits changes
	// threads twice.
	go func() {
		defer close(over)
		code, err = Run(ctx, p, steps)
	}()
	<-over
	err = errors.Join(err, p.Init.Close())
	if errors.Is(context.Cause(ctx), errNoInit) {
		return 1, errors.Join(errNoInit, err)
	}
	return code, err
}

var errNoInit = errors.New("the pod's init was killed")
