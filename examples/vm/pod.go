package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
)

// reportDescriptor is where the supervisor reports, in lines, that the pod is up, and
// an error at its end.
const (
	reportDescriptor = 3
	reportUp         = "up"
	reportError      = "error " // and its text
)

// stopDescriptor is a pipe: each byte in it asks the supervisor to stop the pod. A signal would not do,
// because apps can send the supervisor any.
const stopDescriptor = 4

// supervise is the pod's supervisor in the guest. It is what the reference stager's
// is, but that driver's roots are mounted already.
func supervise(ctx context.Context, driver string) error {
	unix.CloseOnExec(reportDescriptor)
	unix.CloseOnExec(stopDescriptor)
	report := os.NewFile(reportDescriptor, "report")
	ready, err := os.Open(os.DevNull) // stands for the daemon's pipe: without one, boot does not call Up
	if err != nil {
		return fmt.Errorf("%s: %w", names.Program, err)
	}
	messages := supervisor.NewMessages(os.Stderr)
	defer messages.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	supervisor.IgnoreSignals()
	go awaitStop(os.NewFile(stopDescriptor, "stop"), stop)
	log := slog.New(slog.NewTextHandler(messages, nil))
	code, err := boot.Run(ctx, boot.Parts{
		Log:       log,
		Runtime:   container.NewRuntime(names.AppsCgroup, log),
		Drivers:   []unionfs.Driver{shared{driver}},
		Waiter:    reporter{report},
		Inherited: boot.Inherited{Ready: ready},
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

// awaitStop calls stop when the guest's first process asks for it. When that process has ended, so has
// the guest.
func awaitStop(orders *os.File, stop func()) {
	if n, _ := orders.Read(make([]byte, 1)); n > 0 {
		stop()
	}
}

// reporter implements boot.Waiter for a supervisor that was started in the
// right namespaces: the stager outside has planned them.
type reporter struct{ report *os.File }

// Settle implements boot.Waiter.
func (r reporter) Settle(uintptr, *os.File) error { return nil }

// Up implements boot.Waiter.
func (r reporter) Up() error {
	_, err := fmt.Fprintln(r.report, reportUp)
	return err
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
