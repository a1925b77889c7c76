package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/names"
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
	return live(ctx, line, func(log *slog.Logger) boot.Parts { return partsOf(in, line.Helpers(log), log) })
}

// partsOf returns the parts of the reference stager. The waiter starts the helpers that a driver or
// a runtime needs.
func partsOf(in boot.Inherited, starter helper.Starter, log *slog.Logger) boot.Parts {
	return boot.Parts{
		Version: version, Runtime: newRuntime(names.AppsCgroup, starter, log), Drivers: newDrivers(starter),
		Inherited: in, CallIns: handlers,
	}
}

// live runs the pod.
func live(ctx context.Context, line *waiter.Line, parts func(*slog.Logger) boot.Parts) error {
	code, err := boot.Supervise(ctx, line, parts, newSteps())
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", names.Program, err)
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}
