// Package helper is the contract by which a union file system driver or a container runtime
// starts a process, such as a FUSE daemon: how the process starts, where its output goes, and how
// it ends.
//
// Children starts helpers as children of the program. Helpers of the supervisor are out of the apps' reach: outside of
// the pod's PID namespace, unless the pod uses the host's, where apps of user 0 can signal them.
package helper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Starter starts helper processes. Its methods may be called by several goroutines
// at once.
type Starter interface {
	// Start starts a helper and returns when its program runs. If the program cannot be
	// executed, the error wraps the errno and names the program. ctx limits the start, not
	// the helper's life. After an error, no process of the helper is left, or it is being
	// killed.
	Start(ctx context.Context, cmd Command) (*Process, error)
}

// Command is a helper process to start. It runs as the caller's user with the caller's
// capabilities, in the caller's cgroup, as the leader of a new session, in the folder "/", with no
// signal ignored or blocked. Its stdin is /dev/null. Each line of its stdout and stderr is logged
// with its name; a helper never waits for the log.
type Command struct {
	// Name is what the log and errors call the helper, for example "fuse-overlayfs of app db".
	Name string

	// Args is the program and its arguments. Args[0] is the program's absolute path
	// in the caller's mount namespace.
	Args []string

	// Env is the whole environment, NAME=value.
	Env []string

	// Files are the helper's descriptors from 3 on, in this order, at most
	// 32. The caller closes its own copies after Start.
	Files []*os.File

	// OwnMounts starts the helper in a copy of the caller's mount namespace. The caller then does not see the helper's
	// mounts. Without OwnMounts the helper shares the caller's mount namespace. /proc/self does not exist in either.
	OwnMounts bool
}

// maxFiles is the largest number of files of a helper.
const maxFiles = 32

// Check returns an error that names what is wrong with the command. A Starter calls it
// before anything else.
func (c *Command) Check() error {
	switch {
	case c.Name == "":
		return errors.New("start helper: no name")
	case len(c.Args) == 0 || !filepath.IsAbs(c.Args[0]):
		return fmt.Errorf("start helper %q: the program needs an absolute path", c.Name)
	case len(c.Files) > maxFiles:
		return fmt.Errorf("start helper %q: %d files are more than %d", c.Name, len(c.Files), maxFiles)
	}
	for _, list := range [][]string{c.Args, c.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return fmt.Errorf("start helper %q: %q contains a NUL byte", c.Name, s)
			}
		}
	}
	for i, f := range c.Files {
		if f == nil {
			return fmt.Errorf("start helper %q: file %d is nil", c.Name, i)
		}
	}
	return nil
}

// Process is a running helper. Its methods may be called by several goroutines at once. It ends
// when the program that has started it ends, also if that program is killed.
type Process struct {
	done chan struct{}
	err  error // written before done is closed
	kill func()
	once sync.Once // kills
}

// NewProcess is for a Starter. wait must return when the helper and the processes that it has
// forked have ended and its output is in the log; Process.Wait returns its error. kill is called at
// most once, possibly after the end.
func NewProcess(wait func() error, kill func()) *Process {
	p := &Process{done: make(chan struct{}), kill: kill}
	go func() {
		defer close(p.done)
		p.err = wait()
	}()
	return p
}

// Done is closed when the helper and the processes that it has forked have ended, and its output
// is in the log.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until Done is closed. It returns nil after exit code 0, else an *ExitError, or another
// error if the exit status is not known.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Kill kills the helper and does not wait for its end. It may be called several times, and after
// the end.
func (p *Process) Kill() { p.once.Do(p.kill) }

// ExitError is a helper's end with an exit code other than 0.
type ExitError struct {
	Name string
	Code int // 128+N when signal N has ended it
}

// Error implements error.
func (e *ExitError) Error() string {
	return fmt.Sprintf("helper %q ended with exit code %d", e.Name, e.Code)
}

// ExitStatus is for a Starter: it returns Process.Wait's error for a wait status.
func ExitStatus(name string, status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return &ExitError{Name: name, Code: 128 + int(status.Signal())}
	case status.ExitStatus() != 0:
		return &ExitError{Name: name, Code: status.ExitStatus()}
	}
	return nil
}
