package waiter

// #include "waiter.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/waiter/helper"
)

// helpers implements helper.Starter: the waiter starts a guard, guard.c, and the guard starts
// the helper.
type helpers struct {
	line *Line
	log  *slog.Logger
}

// Helpers returns what starts helper processes out of the apps' reach, once Settle has returned
// nil. log takes their output.
func (l *Line) Helpers(log *slog.Logger) helper.Starter { return helpers{l, log} }

// helperPipes are the supervisor's ends of what it shares with a helper and its guard.
type helperPipes struct {
	report *os.File // see WAITER_REPORT
	leash  *os.File // see WAITER_LEASH
	output *os.File
}

func (p helperPipes) close() { closeFiles(p.report, p.leash, p.output) }

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// Start implements helper.Starter.
func (h helpers) Start(ctx context.Context, cmd helper.Command) (*helper.Process, error) {
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	select {
	case <-h.line.settled:
	default: // the waiter reads no requests yet, and may start another supervisor
		return nil, fmt.Errorf("start helper %q: the pod's namespaces are not settled yet", cmd.Name)
	}
	pipes, err := h.ask(cmd)
	if err == nil {
		err = pipes.result(ctx, cmd.Args[0])
	}
	if err != nil {
		pipes.close() // without its leash, the guard kills what there is
		return nil, fmt.Errorf("start helper %q: %w", cmd.Name, err)
	}
	return helper.NewProcess(func() error { return pipes.wait(cmd.Name, h.log) }, pipes.kill), nil
}

// ask sends the waiter the request for the helper.
func (h helpers) ask(cmd helper.Command) (pipes helperPipes, err error) {
	files := make([]*os.File, C.WAITER_FILES, C.WAITER_FILES+len(cmd.Files))
	defer func() { closeFiles(files[:C.WAITER_FILES]...) }()
	if files[C.WAITER_PLAN], err = helperPlan(cmd); err != nil {
		return pipes, err
	}
	mounts, err := unix.FcntlInt(h.line.mounts.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return pipes, os.NewSyscallError("fcntl", err)
	}
	files[C.WAITER_MOUNTS] = os.NewFile(uintptr(mounts), "mount namespace")
	if files[C.WAITER_STDIN], err = os.Open(os.DevNull); err != nil {
		return pipes, err
	}
	if pipes.report, files[C.WAITER_REPORT], err = os.Pipe(); err != nil {
		return pipes, err
	}
	if pipes.output, files[C.WAITER_OUTPUT], err = os.Pipe(); err != nil {
		return pipes, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return pipes, os.NewSyscallError("socketpair", err)
	}
	files[C.WAITER_LEASH] = os.NewFile(uintptr(pair[1]), "leash")
	if err := unix.SetNonblock(pair[0], true); err != nil { // os.NewFile polls such files only
		unix.Close(pair[0])
		return pipes, os.NewSyscallError("fcntl", err)
	}
	pipes.leash = os.NewFile(uintptr(pair[0]), "leash")
	request := C.struct_waiter_request{kind: C.WAITER_HELPER}
	if cmd.OwnMounts {
		request.own_mounts = 1
	}
	return pipes, h.line.ask(&request, append(files, cmd.Files...)...)
}

// helperPlan writes what the helper executes into a memfd, as waiter.h describes it.
func helperPlan(cmd helper.Command) (*os.File, error) {
	var text []byte
	for _, list := range [][]string{cmd.Args, cmd.Env} {
		for _, s := range list {
			text = append(append(text, s...), 0)
		}
	}
	header := C.struct_waiter_plan{nargs: C.uint32_t(len(cmd.Args)), nenv: C.uint32_t(len(cmd.Env))}
	plan := append(bytesOf(&header), text...)
	header.size = C.uint32_t(len(plan))
	copy(plan, bytesOf(&header))
	fd, err := unix.MemfdCreate("stager-helper", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "plan")
	if _, err := f.WriteAt(plan, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Steps of a report that are not failures of the way to the helper's program.
const (
	stepReady = C.WAITER_READY
	stepExec  = C.WAITER_EXEC
)

// errNoReport means that the helper, its guard or the waiter has ended before the helper's program ran.
var errNoReport = errors.New("ended before the helper's program ran")

// result waits until the helper's program runs.
func (p helperPipes) result(ctx context.Context, program string) error {
	defer context.AfterFunc(ctx, func() { _ = p.report.SetReadDeadline(time.Now()) })()
	var r C.struct_waiter_report
	err := readStruct(p.report, &r)
	ready := err == nil && r.step == stepReady
	if ready {
		err = readStruct(p.report, &r)
	}
	switch {
	case errors.Is(err, io.EOF) && ready:
		return nil
	case errors.Is(err, io.EOF):
		return errNoReport
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("read its report: %w", err)
	}
	if r.step == stepExec {
		return &os.PathError{Op: "exec", Path: program, Err: syscall.Errno(r.error)}
	}
	return fmt.Errorf("%s: %w", helperStep(r.step), syscall.Errno(r.error))
}

// helperStep names what failed, as the verb phrase of an error.
func helperStep(step C.uint32_t) string {
	what, known := map[C.uint32_t]string{
		C.WAITER_FORK:        "fork",
		C.WAITER_READ_PLAN:   "read plan",
		C.WAITER_JOIN_MOUNTS: "enter mount namespace",
		C.WAITER_MOUNT_PROC:  "mount /proc",
		C.WAITER_PASS_FILES:  "pass files",
	}[step]
	if !known {
		return fmt.Sprintf("step %d", step)
	}
	return what
}

// wait logs the helper's output and returns how the helper ended. By then the guard has
// killed what the helper has left, so the output ends.
func (p helperPipes) wait(name string, log *slog.Logger) error {
	defer p.close()
	helper.LogOutput(p.output, name, log)
	// A helper that has closed its output may run on.
	var status int32
	if err := readStruct(p.leash, &status); err != nil {
		// The guard was killed, and the helper with it.
		return &helper.ExitError{Name: name, Code: 128 + int(syscall.SIGKILL)}
	}
	return helper.ExitStatus(name, syscall.WaitStatus(status))
}

// kill makes the guard kill the helper.
func (p helperPipes) kill() {
	raw, err := p.leash.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) }) // an error: the helper has ended
}
