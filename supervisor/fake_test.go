package supervisor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor/reap"
)

// fake is a Container of real processes without namespaces: a cgroup is all
// that holds it together.
type fake struct {
	args   []string
	cgroup string
	oom    bool // an out-of-memory kill ended the main process, if SIGKILL did
	// starting, where not nil, is received from before the process starts.
	starting <-chan struct{}
}

type process int

func (p process) PID() int { return int(p) }
func (process) Release()   {}

func (f *fake) Start(stdio Stdio) (Process, error) {
	if f.starting != nil {
		<-f.starting
	}
	return f.exec(Command{Args: f.args, Env: os.Environ()}, stdio)
}

func (f *fake) Exec(cmd Command, stdio Stdio) (Process, error) { return f.exec(cmd, stdio) }

func (f *fake) OOMKilled() bool { return f.oom }

func (f *fake) exec(cmd Command, stdio Stdio) (Process, error) {
	cgroup, err := os.Open(f.cgroup)
	if err != nil {
		return nil, err
	}
	defer cgroup.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := []*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr}
	attr := &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	if stdio.Terminal {
		slave, err := openTerminal(stdio)
		if err != nil {
			return nil, err
		}
		defer slave.Close()
		files = []*os.File{slave, slave, slave}
		attr.Setctty = true
	}
	fds := make([]uintptr, 3)
	for i, f := range files {
		if f == nil {
			f = null
		}
		fds[i] = f.Fd()
	}
	pid, _, err := syscall.StartProcess(cmd.Args[0], cmd.Args,
		&syscall.ProcAttr{Env: cmd.Env, Dir: cmd.Dir, Files: fds, Sys: attr})
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		return nil, &ExecError{Path: cmd.Args[0], Errno: errno}
	}
	return process(pid), nil
}

func openTerminal(stdio Stdio) (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	slave, err := unix.IoctlRetInt(int(master.Fd()), 0x5441) // TIOCGPTPEER, whose argument is 0 here: O_RDONLY
	if err != nil {
		return nil, err
	}
	_ = unix.Close(slave)
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	stdio.Console <- master
	return os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
}

func (f *fake) PIDs() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(f.cgroup, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func (f *fake) Kill() error {
	if err := os.WriteFile(filepath.Join(f.cgroup, "cgroup.kill"), []byte("1"), 0); err != nil {
		return err
	}
	events, err := os.Open(filepath.Join(f.cgroup, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		text := make([]byte, 4096)
		n, err := events.ReadAt(text, 0)
		if n == 0 {
			return err
		}
		if bytes.Contains(text[:n], []byte("populated 0")) {
			return nil
		}
		poll := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(poll, 1000); err != nil && err != unix.EINTR {
			return err
		}
	}
}

func (f *fake) Destroy() error { return os.Remove(f.cgroup) }

// fakes makes the containers of one test, in a cgroup of its own.
type fakes struct {
	t   testing.TB
	dir string
	mu  sync.Mutex
	n   int // guarded by mu
}

func newFakes(t testing.TB) *fakes {
	t.Helper()
	dir, err := os.MkdirTemp(cgroup2(t), "supervisor-test-")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakes{t: t, dir: dir}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("a container was not destroyed: %v", err)
		}
	})
	return b
}

func cgroup2(t testing.TB) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Fatal("no cgroup2 is mounted")
	return ""
}

func (b *fakes) make(args ...string) (*fake, error) {
	b.mu.Lock()
	b.n++
	dir := filepath.Join(b.dir, strconv.Itoa(b.n))
	b.mu.Unlock()
	return &fake{args: args, cgroup: dir}, os.Mkdir(dir, 0o755)
}

// run is a factory of containers that run args.
func (b *fakes) run(args ...string) func() (Container, error) {
	return func() (Container, error) {
		c, err := b.make(args...)
		return c, err
	}
}

// sh is a factory of containers that run a shell script.
func (b *fakes) sh(script string) func() (Container, error) {
	return b.run("/bin/sh", "-c", script)
}

// log collects what an app writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	more *sync.Cond
}

func newLog() *log {
	l := &log{}
	l.more = sync.NewCond(&l.mu)
	return l
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more.Broadcast()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log contains text.
func (l *log) await(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.text.String(), text) {
		l.more.Wait()
	}
}

// running is a pod whose Run is under way.
type running struct {
	*Pod
	t     *testing.T
	end   context.CancelFunc
	ready chan struct{}
	done  chan struct{}
	code  int
	err   error
}

// refusals fails a test when a state that the diagram forbids is refused.
type refusals struct{ t *testing.T }

func (r refusals) Write(message []byte) (int, error) {
	if bytes.Contains(message, []byte(refusedMove)) {
		r.t.Errorf("%s", message)
	}
	return len(message), nil
}

// start runs a pod with a reaper of its own.
func start(t *testing.T, config Config) *running {
	t.Helper()
	if config.Reaper == nil {
		config.Reaper = newReaper(t)
	}
	if config.Log == nil {
		config.Log = slog.New(slog.NewTextHandler(refusals{t}, nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Pod: NewPod(config), t: t, end: cancel, ready: make(chan struct{}), done: make(chan struct{})}
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	go func() {
		defer close(r.done)
		r.code, r.err = r.Run(ctx, func() error {
			close(r.ready)
			return nil
		})
	}()
	return r
}

// up waits until the pod is ready.
func (r *running) up() *running {
	r.t.Helper()
	select {
	case <-r.ready:
	case <-r.done:
		r.t.Fatalf("the pod ended before it was ready: %d, %v", r.code, r.err)
	}
	return r
}

// stopped stops the pod and returns what Run did.
func (r *running) stopped() (int, error) {
	r.end()
	<-r.done
	return r.code, r.err
}

// over waits until Run has returned.
func (r *running) over() (int, error) {
	<-r.done
	return r.code, r.err
}

func newReaper(t testing.TB) *reap.Reaper {
	t.Helper()
	r, err := reap.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}
