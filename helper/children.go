package helper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
)

// Children starts helpers as children of the program, each as process 1 of a PID namespace of its own: all that a
// helper has forked ends with it, and the helper with the program. It needs root.
type Children struct {
	Log *slog.Logger // takes the output
}

// Start implements Starter.
func (c Children) Start(ctx context.Context, cmd Command) (*Process, error) {
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
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWPID},
	}
	if child.Env == nil {
		child.Env = []string{} // nil would be the program's own
	}
	started, ended := make(chan error, 1), make(chan error, 1)
	// The kernel sends the parent-death signal when this thread ends, prctl(2).
	thread.Go(func() {
		err := settle(cmd.OwnMounts)
		if err == nil {
			err = child.Start()
		}
		write.Close()
		started <- err
		if err != nil {
			return
		}
		ended <- child.Wait()
	})
	if err := <-started; err != nil {
		read.Close()
		return nil, fmt.Errorf("start helper %q: %w", cmd.Name, execError(err, cmd.Args[0]))
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		LogOutput(read, cmd.Name, c.Log)
	}()
	wait := func() error {
		defer read.Close()
		err := <-ended
		<-logged // the kernel has killed what the helper has forked
		return exitError(cmd.Name, err)
	}
	return NewProcess(wait, func() { _ = child.Process.Kill() }), nil
}

// settle gives the thread, and so the helper, no blocked signal, and its own mounts if it is to have them.
func settle(ownMounts bool) error {
	var none unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil); err != nil {
		return os.NewSyscallError("rt_sigprocmask", err)
	}
	if !ownMounts {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("mount", unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""))
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
		return ExitStatus(name, status)
	}
	if err != nil {
		return fmt.Errorf("helper %q has ended: %w", name, err)
	}
	return nil
}
