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

	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
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

// errOtherNamespaces means that the supervisor will be started again, in other
// namespaces.
var errOtherNamespaces = errors.New("started in other namespaces than the pod's")

// settle tells the waiter which namespaces are wanted and which descriptor is
// the ready pipe, nil for none. Those that are not the supervisor's own
// are errOtherNamespaces.
func (w waiter) settle(wanted uintptr, ready *os.File) error {
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
		return errOtherNamespaces
	}
	return nil
}

// up has the waiter close its copy of the ready pipe.
func (w waiter) up() error {
	_, err := w.report.Write([]byte{1})
	return errors.Join(err, w.report.Close())
}

// supervise is the pod's PID 1, or in the host's PID namespace a child
// subreaper. It returns when the pod is over.
func supervise(ctx context.Context, mark string) error {
	in := takeDescriptors(os.Environ())
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
	b := &boot{log: log, inherited: in, waiter: w, runtime: newRuntime(names.AppsCgroup, log)}
	go b.dieWithWaiter()
	code, err := b.run(ctx)
	switch {
	case errors.Is(err, errOtherNamespaces):
		return nil
	case err != nil:
		return fmt.Errorf("stager: %w", err)
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}

// guardLimits prevents apps from changing the supervisor's resource limits. The supervisor and
// root's apps have the same user and group IDs, which is all that prlimit(2) asks for, and
// no Landlock domain denies it; with a saved group ID that no app has, the supervisor is out of their
// reach but for CAP_SYS_RESOURCE. A FUSE file system that serves its mounter alone compares
// the same IDs, so this phase comes after the roots and volumes. A program that is executed has its saved
// group ID from the effective one again (execve(2)).
func (b *boot) guardLimits(context.Context) error {
	const unused = 65534
	if err := unix.Setresgid(-1, -1, unused); err != nil {
		b.log.Warn("apps of user 0 can change the supervisor's resource limits", "error", os.NewSyscallError("setresgid", err))
	}
	return nil
}

// dieWithWaiter ends the supervisor, and the pod with it, when the stager's
// first process is gone: PID 1 takes its PID namespace along, and in the host's, the
// pod's processes are killed one by one. There is no process left to report an error to.
func (b *boot) dieWithWaiter() {
	_, _ = b.waiter.lifeline.Read(make([]byte, 1)) // ends at end of file, or with an error that means the same
	if b.waiter.namespaces&unix.CLONE_NEWPID == 0 {
		_ = b.runtime.KillPod()
	}
	os.Exit(1)
}
