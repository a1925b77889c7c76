package boot

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"kurma.io/stager/supervisor"
)

// Supervise is the main function of a supervisor that waiter's process has started: it runs the pod as Run does, until
// the pod's end or the daemon's request to stop it. The log goes to stderr. parts returns the parts that the caller
// chooses, which may use the log; Supervise adds Log, LimitLog and Waiter. A supervisor that is to be started again in
// other namespaces returns 0 and no error.
func Supervise(
	ctx context.Context, waiter Waiter, parts func(*slog.Logger) Parts, steps []Step,
) (code int, err error) {
	messages := supervisor.NewMessages(os.Stderr) // if the reader of stderr stops reading, the pod must not stop
	defer messages.Close()
	log := slog.New(slog.NewTextHandler(messages, nil))
	p := parts(log)
	p.Log, p.LimitLog, p.Waiter = log, messages.Limit, waiter
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	supervisor.IgnoreSignals()
	// If the waiter is gone, no process is left to which an error of KillPod could be reported.
	go waiter.Watch(stop, func() { _ = p.Runtime.KillPod() })
	over := make(chan struct{})
	// On another goroutine, because this one has the process's first thread (packages waiter and pid1): each of its waits
	// changes threads twice.
	go func() {
		defer close(over)
		code, err = Run(ctx, p, steps)
	}()
	<-over
	if errors.Is(err, ErrOtherNamespaces) {
		return 0, nil
	}
	return code, err
}
