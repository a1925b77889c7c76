package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/helper"
	"kurma.io/stager/internal/version"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
)

// supervise is the supervisor. It returns when the pod has ended.
func supervise(ctx context.Context, init *pid1.Init) error {
	in := boot.TakeDescriptors(os.Environ())
	parts := func(log *slog.Logger) boot.Parts { return partsOf(in, init, helper.Children{Log: log}, log) }
	code, err := boot.Supervise(ctx, parts, newSteps())
	defer runtime.KeepAlive(in.Ready) // a start that fails closes it by the end of this process alone
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", names.Program, err)
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}

// partsOf returns the parts of the reference stager. The starter starts the helpers that a driver or
// a runtime needs.
func partsOf(in boot.Inherited, init *pid1.Init, starter helper.Starter, log *slog.Logger) boot.Parts {
	return boot.Parts{
		Version: version.String(), Runtime: newRuntime(names.AppsCgroup, init, starter, log), Drivers: newDrivers(starter),
		Init: init, Inherited: in, CallIns: handlers,
	}
}
