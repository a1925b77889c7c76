package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/waiter"
	"kurma.io/stager/waiter/helper"
)

// supervise is the supervisor: the pod's PID 1, or in the host's PID namespace a child subreaper. It
// returns when the pod has ended.
func supervise(ctx context.Context) error {
	in := boot.TakeDescriptors(os.Environ())
	line, err := waiter.TakeLine()
	if err != nil {
		return fmt.Errorf("%s: %w", names.Program, err)
	}
	// If the reader of stderr stops reading, the pod must not stop.
	messages := supervisor.NewMessages(os.Stderr)
	defer messages.Close()
	log := slog.New(slog.NewTextHandler(messages, nil))
	return live(ctx, line, partsOf(line, in, line.Helpers(log), log, messages.Limit))
}

// partsOf returns the parts of the reference stager. The waiter starts the helpers that a driver or
// a runtime needs.
func partsOf(
	line *waiter.Line, in boot.Inherited, starter helper.Starter, log *slog.Logger, limitLog func(int64),
) boot.Parts {
	return boot.Parts{
		Log: log, LimitLog: limitLog, Version: version,
		Runtime: newRuntime(names.AppsCgroup, starter, log), Drivers: newDrivers(starter),
		Waiter: line, Inherited: in, CallIns: handlers,
	}
}

// live runs the pod. If the waiter is gone, no process is left to which an error of KillPod could be
// reported.
func live(ctx context.Context, line *waiter.Line, parts boot.Parts) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	supervisor.IgnoreSignals()
	go line.Watch(stop, func() { _ = parts.Runtime.KillPod() })
	var code int
	var err error
	over := make(chan struct{})
	// On another goroutine, because this one has the first thread (package waiter): each of its waits changes threads
	// twice.
	go func() {
		defer close(over)
		code, err = boot.Run(ctx, parts, newSteps())
	}()
	<-over
	switch {
	case errors.Is(err, boot.ErrOtherNamespaces):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", names.Program, err)
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}
