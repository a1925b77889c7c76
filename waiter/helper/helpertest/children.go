// Package helpertest starts helpers as plain children, for tests of drivers and runtimes that start helpers.
package helpertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/waiter/helper"
)

// outputLimit limits the wait for the end of a helper's output after the helper's end:
// a process that has left the helper's session may hold the output open.
const outputLimit = time.Second

// Children starts helpers as children of the program: in its PID namespace, where apps
// of the same namespace can see and kill them. A helper's process group is
// killed when the helper ends; processes that have left the group are not.
//
// If the program also reaps children that it does not know, as a pod's PID 1 does, a
// helper's exit status can be lost, which helper.Process.Wait returns as an error.
type Children struct {
	Log *slog.Logger // takes the output
}

// Start implements helper.Starter. It does not support OwnMounts.
func (c Children) Start(ctx context.Context, cmd helper.Command) (*helper.Process, error) {
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start helper %q: %w", cmd.Name, err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start helper %q: %w", cmd.Name, err)
	}
	child := &exec.Cmd{
		Path: cmd.Args[0], Args: cmd.Args, Env: cmd.Env, Dir: "/", ExtraFiles: cmd.Files, Stdout: write, Stderr: write,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if child.Env == nil {
		child.Env = []string{} // nil would be the program's own
	}
	started, ended := make(chan error, 1), make(chan error, 1)
	// The kernel sends the parent-death signal when this thread ends, prctl(2).
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := child.Start()
		write.Close()
		started <- err
		if err != nil {
			return
		}
		// Until the helper is reaped, no other session has its ID.
		pid := child.Process.Pid
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
		_ = unix.Kill(-pid, unix.SIGKILL) // ESRCH: nothing is left of its session
		ended <- child.Wait()
	}()
	if err := <-started; err != nil {
		read.Close()
		return nil, fmt.Errorf("start helper %q: %w", cmd.Name, execError(err, cmd.Args[0]))
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		helper.LogOutput(read, cmd.Name, c.Log)
	}()
	wait := func() error {
		defer read.Close()
		err := <-ended
		select {
		case <-logged:
		case <-time.After(outputLimit):
		}
		return exitError(cmd.Name, err)
	}
	return helper.NewProcess(wait, func() { _ = child.Process.Kill() }), nil
}

// execError returns the error with the program's name, in one form for all errors of os/exec.
func execError(err error, program string) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return &fs.PathError{Op: "exec", Path: program, Err: err}
}

func exitError(name string, err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, _ := exit.Sys().(syscall.WaitStatus)
		return helper.ExitStatus(name, status)
	}
	if err != nil {
		return fmt.Errorf("helper %q has ended: %w", name, err)
	}
	return nil
}
