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

// box is a container without walls: its processes are plain processes of the
// pod's PID namespace.
type box struct {
	args []string

	mu       sync.Mutex
	sessions map[int]bool // guarded by mu
}

func newBox(args []string) *box { return &box{args: args, sessions: make(map[int]bool)} }

type plain int

func (p plain) PID() int { return int(p) }
func (p plain) Release() {}

func (b *box) Start(stdio supervisor.Stdio) (supervisor.Process, error) {
	return b.Exec(supervisor.Command{Args: b.args, Env: os.Environ()}, stdio)
}

func (b *box) Exec(cmd supervisor.Command, stdio supervisor.Stdio) (supervisor.Process, error) {
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
	pid := plain(p.Pid)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[p.Pid] = true
	return pid, p.Release()
}

func or(f, instead *os.File) *os.File {
	if f == nil {
		return instead
	}
	return f
}

// PIDs are those of the sessions that the box's processes began.
func (b *box) PIDs() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
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
		if pid, err := strconv.Atoi(entry.Name()); err == nil && b.sessions[session] && fields[0][0] != 'Z' {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (b *box) Kill() error {
	pids, err := b.PIDs()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return err
}

func (b *box) Destroy() error { return nil }
