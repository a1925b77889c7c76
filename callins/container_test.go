package callins

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"github.com/creack/pty"

	"kurma.io/stager/supervisor"
)

// plainContainer is a supervisor.Container that isolates nothing: its processes
// are plain processes of the pod's PID namespace.
type plainContainer struct {
	args []string

	mu       sync.Mutex
	sessions map[int]bool // guarded by mu
}

func newPlainContainer(args []string) *plainContainer {
	return &plainContainer{args: args, sessions: make(map[int]bool)}
}

// plainProcess is a process by its number.
type plainProcess int

func (p plainProcess) PID() int { return int(p) }
func (p plainProcess) Release() {}

func (c *plainContainer) Start(stdio supervisor.Stdio) (supervisor.Process, error) {
	return c.Exec(supervisor.Command{Args: c.args, Env: os.Environ()}, stdio)
}

func (c *plainContainer) Exec(cmd supervisor.Command, stdio supervisor.Stdio) (supervisor.Process, error) {
	path, err := exec.LookPath(cmd.Args[0])
	if err != nil {
		errno := syscall.ENOENT
		errors.As(err, &errno)
		return nil, &supervisor.ExecError{Path: cmd.Args[0], Errno: errno}
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Dir: "/" + cmd.Dir, Env: cmd.Env, Sys: &syscall.SysProcAttr{Setsid: true},
		Files: []*os.File{or(stdio.Stdin, null), or(stdio.Stdout, null), or(stdio.Stderr, null)},
	}
	if stdio.Terminal {
		master, tty, err := pty.Open()
		if err != nil {
			return nil, err
		}
		defer tty.Close()
		if err := pty.Setsize(master, &pty.Winsize{Cols: stdio.Width, Rows: stdio.Height}); err != nil {
			return nil, err
		}
		stdio.Console <- master
		attr.Files = []*os.File{tty, tty, tty}
		attr.Sys.Setctty = true
	}
	p, err := os.StartProcess(path, cmd.Args, attr)
	if err != nil {
		return nil, err
	}
	pid := plainProcess(p.Pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[p.Pid] = true
	return pid, p.Release()
}

func or(f, instead *os.File) *os.File {
	if f == nil {
		return instead
	}
	return f
}

// PIDs returns the processes of the sessions that the container's processes began.
func (c *plainContainer) PIDs() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var pids []int
	for _, entry := range entries {
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		session, err := strconv.Atoi(string(fields[3]))
		if err != nil {
			return nil, err
		}
		if pid, err := strconv.Atoi(entry.Name()); err == nil && c.sessions[session] && fields[0][0] != 'Z' {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (c *plainContainer) Kill() error {
	pids, err := c.PIDs()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return err
}

func (c *plainContainer) Destroy() error { return nil }
