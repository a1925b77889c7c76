package helper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/child"
	"kurma.io/stager/internal/thread"
)

// Children starts helpers as children of the program, each as process 1 of a PID namespace of its own: all that a
// helper has forked ends with it, and the helper with the program. It needs root.
type Children struct {
	Log *slog.Logger // takes the output

	mu      sync.Mutex
	running map[*Process]struct{}
}

// End kills the helpers that run, and waits until they have ended, at most the limit: a program that ends with End
// leaves nothing in its cgroup, while the kernel ends helpers a moment after the program.
func (c *Children) End(limit time.Duration) {
	c.mu.Lock()
	running := slices.Collect(maps.Keys(c.running))
	c.mu.Unlock()
	for _, p := range running {
		p.Kill()
	}
	over := time.After(limit)
	for _, p := range running {
		select {
		case <-p.Done():
		case <-over:
			return
		}
	}
}

// Start implements Starter.
func (c *Children) Start(ctx context.Context, cmd Command) (*Process, error) {
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
	started := make(chan error, 1)
	var process *child.Process
	// The kernel sends the parent-death signal when this thread ends, prctl(2).
	thread.Go(func() {
		var err error
		process, err = c.start(cmd, write)
		write.Close()
		if err == nil {
			if err = thread.CloseFiles(); err != nil {
				_ = process.Signal(syscall.SIGKILL) // it may have ended
			}
		}
		started <- err
		if err == nil {
			<-process.Done()
		}
	})
	if err := <-started; err != nil {
		read.Close()
		return nil, fmt.Errorf("start helper %q: %w", cmd.Name, err)
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		LogOutput(read, cmd.Name, c.Log)
	}()
	wait := func() error {
		defer read.Close()
		<-process.Done()
		<-logged // the kernel has killed what the helper has forked
		return ExitStatus(cmd.Name, process.Status())
	}
	p := NewProcess(wait, func() { _ = process.Signal(syscall.SIGKILL) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(map[*Process]struct{})
	}
	c.running[p] = struct{}{}
	go func() {
		<-p.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, p)
	}()
	return p, nil
}

// start starts a helper as a child of the thread.
func (c *Children) start(cmd Command, output *os.File) (*child.Process, error) {
	program := &exec.Cmd{
		Path: cmd.Args[0], Args: cmd.Args, Env: cmd.Env, Dir: "/", ExtraFiles: cmd.Files, Stdout: output, Stderr: output,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWPID},
	}
	if program.Env == nil {
		program.Env = []string{} // nil would be the program's own
	}
	if err := settle(cmd.OwnMounts); err != nil {
		return nil, err
	}
	if err := program.Start(); err != nil {
		return nil, execError(err, cmd.Args[0])
	}
	pid := program.Process.Pid
	_ = program.Process.Release() // child.Follow waits for it
	return child.Follow(pid, nil)
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
