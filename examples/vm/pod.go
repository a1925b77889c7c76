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
	"kurma.io/stager/container"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
	"kurma.io/stager/unionfs"
)

// reportDescriptor is where the supervisor reports, in lines, that the pod is up, and
// an error at its end.
const (
	reportDescriptor = 3
	reportUp         = "up"
	reportError      = "error " // and its text
)

// stopDescriptor is a pipe: a byte in it asks the supervisor to stop the pod. A signal would not do, which ends a
// supervisor that does not catch it yet.
const stopDescriptor = 4

// supervise is the pod's supervisor in the guest. It is what the reference stager's
// is, but that the roots are mounted already, by the driver that is its argument.
func supervise(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: want the name of the driver that has mounted the roots, have %q", names.Program, args)
	}
	unix.CloseOnExec(reportDescriptor)
	unix.CloseOnExec(stopDescriptor)
	report := os.NewFile(reportDescriptor, "report")
	ready, err := os.Open(os.DevNull) // stands for the daemon's pipe: without one, boot does not call Up
	if err != nil {
		return fmt.Errorf("%s: %w", names.Program, err)
	}
	init, err := pid1.New()
	if err != nil {
		return fmt.Errorf("%s: %w", names.Program, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		// When the guest's first process, which sends the order, has ended, so has the guest.
		if n, _ := os.NewFile(stopDescriptor, "stop").Read(make([]byte, 1)); n > 0 {
			stop()
		}
	}()
	code, err := boot.Supervise(ctx, func(log *slog.Logger) boot.Parts {
		return boot.Parts{
			Runtime:   container.NewRuntime(names.AppsCgroup, init, log),
			Drivers:   []unionfs.Driver{shared{args[0]}},
			Init:      reporter{init, report},
			Inherited: boot.Inherited{Ready: ready},
		}
	}, boot.Steps())
	switch {
	case err != nil:
		fmt.Fprintln(report, reportError+inOneLine(err))
		return &callins.ExitError{Code: max(code, 1)}
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}

// reporter is an init that also reports outside that the pod is up.
type reporter struct {
	*pid1.Init
	report *os.File
}

// Up implements boot.Init.
func (r reporter) Up() error {
	_, err := fmt.Fprintln(r.report, reportUp)
	return errors.Join(err, r.Init.Up())
}

// shared is the unionfs.Driver of roots that are mounted outside, by the driver of
// that name.
type shared struct{ outside string }

// Name implements unionfs.Driver.
func (s shared) Name() string { return s.outside }

// Probe implements unionfs.Driver.
func (s shared) Probe(string, []string) ([]string, error) { return nil, nil }

// Mount implements unionfs.Driver.
func (s shared) Mount(_ context.Context, r unionfs.Root) error {
	if err := unix.Mount(rootOf(r.App), r.Target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind shared root: %w", err)
	}
	return nil
}
