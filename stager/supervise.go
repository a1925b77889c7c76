package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/helper"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
)

// supervise is the pod's PID 1, or in the host's PID namespace a child
// subreaper. It returns when the pod is over.
func supervise(ctx context.Context, mark string) error {
	in := boot.TakeDescriptors(os.Environ())
	w, err := takeWaiter(mark)
	if err != nil {
		return fmt.Errorf("%s: %w", names.Program, err)
	}
	// A reader of stderr that stops must not stop the pod.
	messages := supervisor.NewMessages(os.Stderr)
	defer messages.Close()
	log := slog.New(slog.NewTextHandler(messages, nil))
	return live(ctx, w, partsOf(w, in, helpers{w, log}, log))
}

// partsOf puts the stager together. The waiter starts the helpers that a driver or a runtime
// needs.
func partsOf(w waiter, in boot.Inherited, starter helper.Starter, log *slog.Logger) boot.Parts {
	return boot.Parts{
		Log: log, Runtime: newRuntime(names.AppsCgroup, starter, log), Drivers: newDrivers(starter),
		Waiter: w, Inherited: in, CallIns: handlers,
	}
}

// live takes the pod through its life.
func live(ctx context.Context, w waiter, parts boot.Parts) error {
	ctx, release := supervisor.CatchSignals(ctx)
	defer release()
	go dieWith(w, parts.Runtime)
	code, err := boot.Run(ctx, parts)
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

// dieWith ends the supervisor, and the pod with it, when the stager's
// first process is gone: the kernel kills PID 1's namespace with it, and in the host's
// namespace the supervisor kills the pod's cgroup. There is no process left to report an error to.
func dieWith(w waiter, runtime supervisor.Runtime) {
	w.awaitEnd()
	if w.namespaces&unix.CLONE_NEWPID == 0 {
		_ = runtime.KillPod()
	}
	os.Exit(1)
}
