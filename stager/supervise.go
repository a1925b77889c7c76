package main

import "C" // waiter.c is part of the program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
)

// waiter is what the stager's first process, waiter.c, gave the supervisor.
type waiter struct {
	lifeline   *os.File // end of file means that the waiter is gone
	report     *os.File // takes a settlement and, after it, readiness; see waiter.c
	namespaces uintptr  // those that were made, as in clone(2)
}

// takeWaiter reads the variable of the waiter's that mark holds.
func takeWaiter(mark string) (waiter, error) {
	var lifeline, report int
	var w waiter
	if _, err := fmt.Sscanf(mark, "%d,%d,%d", &lifeline, &report, &w.namespaces); err != nil {
		return w, fmt.Errorf("%s: %w", names.SupervisorVariable, err)
	}
	unix.CloseOnExec(lifeline)
	unix.CloseOnExec(report)
	w.lifeline, w.report = os.NewFile(uintptr(lifeline), "lifeline"), os.NewFile(uintptr(report), "report")
	return w, os.Unsetenv(names.SupervisorVariable)
}

// Settle implements boot.Waiter.
func (w waiter) Settle(wanted uintptr, ready *os.File) error {
	descriptor := int32(-1)
	if ready != nil {
		descriptor = int32(ready.Fd())
	}
	settlement := binary.NativeEndian.AppendUint32(nil, uint32(wanted))
	settlement = binary.NativeEndian.AppendUint32(settlement, uint32(descriptor))
	if _, err := w.report.Write(settlement); err != nil {
		return fmt.Errorf("tell the waiter: %w", err)
	}
	if wanted != w.namespaces {
		return boot.ErrOtherNamespaces
	}
	return nil
}

// Up implements boot.Waiter.
func (w waiter) Up() error {
	_, err := w.report.Write([]byte{1})
	return errors.Join(err, w.report.Close())
}

// supervise is the pod's PID 1, or in the host's PID namespace a child
// subreaper. It returns when the pod is over.
func supervise(ctx context.Context, mark string) error {
	in := boot.TakeDescriptors(os.Environ())
	w, err := takeWaiter(mark)
	if err != nil {
		return fmt.Errorf("stager: %w", err)
	}
	// A reader of stderr that stops must not stop the pod.
	messages := supervisor.NewMessages(os.Stderr)
	defer messages.Close()
	ctx, release := supervisor.CatchSignals(ctx)
	defer release()
	log := slog.New(slog.NewTextHandler(messages, nil))
	runtime := newRuntime(names.AppsCgroup, log)
	go dieWith(w, runtime)
	code, err := boot.Run(ctx, boot.Parts{
		Log: log, Runtime: runtime, Drivers: unionfs.Drivers(), Waiter: w, Inherited: in, CallIns: handlers,
	})
	switch {
	case errors.Is(err, boot.ErrOtherNamespaces):
		return nil
	case err != nil:
		return fmt.Errorf("stager: %w", err)
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}

// dieWith ends the supervisor, and the pod with it, when the stager's
// first process is gone: PID 1 takes its PID namespace along, and in the host's, the
// pod's processes are killed one by one. There is no process left to report an error to.
func dieWith(w waiter, runtime supervisor.Runtime) {
	_, _ = w.lifeline.Read(make([]byte, 1)) // ends at end of file, or with an error that means the same
	if w.namespaces&unix.CLONE_NEWPID == 0 {
		_ = runtime.KillPod()
	}
	os.Exit(1)
}
