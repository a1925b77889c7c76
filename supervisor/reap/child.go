package reap

import (
	"os"
	"syscall"

	"kurma.io/stager/spec"
)

// Child is a started process; the Reaper sees its end. Its methods may be called
// by several goroutines at once.
type Child struct {
	reaper  *Reaper
	process spec.Running
	pid     int
	done    chan struct{}

	ended  bool               // guarded by reaper.mu
	status syscall.WaitStatus // written before done is closed, read after
}

// finish frees the process before it closes done, since the code that waits for
// the end goes on to destroy the container.
func (c *Child) finish() {
	c.process.Release()
	close(c.done)
}

// PID is the process's number in the reaper's PID namespace. Once Done is
// closed, the number may belong to another process.
func (c *Child) PID() int { return c.pid }

// Done is closed when the process has ended and been collected.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status is how the process ended. It may be called once Done is closed.
func (c *Child) Status() syscall.WaitStatus { return c.status }

// Signal sends a signal to the process, never to another process that has since got
// its number. It returns os.ErrProcessDone when the process has been collected.
func (c *Child) Signal(sig syscall.Signal) error {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	if c.ended {
		return os.ErrProcessDone
	}
	return syscall.Kill(c.pid, sig)
}
