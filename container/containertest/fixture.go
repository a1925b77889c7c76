package containertest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// timeLimit limits each wait of a case: a case that hangs fails.
const timeLimit = time.Minute

// bench is what one case works with: a prepared runtime, and a root with busybox. At the
// end of the case no process may be left.
type bench struct {
	t       testing.TB
	make    func(cgroup string) spec.Runtime
	dir     string // a tmpfs
	root    string
	cgroup  string // the pod's
	runtime spec.Runtime
	names   int
}

func newBench(t testing.TB, newRuntime func(cgroup string) spec.Runtime) *bench {
	t.Helper()
	b := &bench{t: t, make: newRuntime, dir: t.TempDir()}
	must(t, unix.Mount("tmpfs", b.dir, "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() { must(t, unix.Unmount(b.dir, unix.MNT_DETACH)) })
	b.root = filepath.Join(b.dir, "root")
	b.cgroup = "/containertest-" + strings.ToLower(rand.Text()[:10])
	b.makeRoot()
	b.runtime = b.prepare(b.cgroup, spec.Resources{})
	must(t, b.runtime.MakePod())
	return b
}

// makeRoot fills the root, which is a mount so that it is independent of the tmpfs around it.
func (b *bench) makeRoot() {
	b.t.Helper()
	must(b.t, os.Mkdir(b.root, 0o755))
	must(b.t, unix.Mount("tmpfs", b.root, "tmpfs", 0, "mode=0755"))
	mounted := b.root
	b.t.Cleanup(func() { must(b.t, unix.Unmount(mounted, unix.MNT_DETACH)) })
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "tmp"} {
		must(b.t, os.Mkdir(filepath.Join(b.root, dir), 0o755))
	}
	// For a shell's background jobs, under a runtime without a /dev of its own.
	must(b.t, unix.Mknod(filepath.Join(b.root, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	b.copy("/bin/busybox", "bin/busybox")
	for _, name := range []string{
		"cat", "cut", "dd", "echo", "env", "false", "grep", "head", "id", "ln", "ls", "mkdir", "mknod", "mv", "printf", "pwd",
		"readlink", "rm", "rmdir", "sed", "setsid", "kill", "sh", "sleep", "stat", "stty", "test", "tr", "true", "tty", "unshare",
	} {
		must(b.t, os.Symlink("busybox", filepath.Join(b.root, "bin", name)))
	}
	b.write("etc/passwd", "daemon:x:7:8::/:\nalice:x:1000:2000::/:\n12:x:1012:2012::/:\n")
	b.write("etc/group", "daemon:x:8:\nstaff:x:50:\n12:x:2112:\n")
}

// copy copies a program of the machine into the root.
func (b *bench) copy(from, to string) {
	b.t.Helper()
	program, err := os.ReadFile(from)
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(b.root, to), program, 0o755))
}

func (b *bench) write(path, text string) {
	b.t.Helper()
	must(b.t, os.WriteFile(filepath.Join(b.root, path), []byte(text), 0o644))
}

// folder makes an empty folder outside the root.
func (b *bench) folder() string {
	b.t.Helper()
	b.names++
	dir := filepath.Join(b.dir, "folder"+strconv.Itoa(b.names))
	must(b.t, os.Mkdir(dir, 0o755))
	return dir
}

// prepare returns a prepared runtime. At the case's end it is closed, and its cgroup must be gone.
func (b *bench) prepare(cgroup string, limits spec.Resources) spec.Runtime {
	b.t.Helper()
	r := b.make(cgroup)
	b.t.Cleanup(func() {
		must(b.t, r.Close())
		b.wantNoCgroup(cgroup)
	})
	must(b.t, r.Prepare(b.folder(), limits))
	return r
}

// spec returns the spec of a minimal app.
func (b *bench) spec(args ...string) spec.Spec {
	b.names++
	name := "app" + strconv.Itoa(b.names)
	return spec.Spec{
		Name: name, Root: b.root, Cgroup: b.cgroup + "/" + name,
		Process: spec.Process{
			Args: args, Env: []string{"PATH=/bin"}, User: "0", Group: "0",
			Capabilities: spec.DefaultCapabilities(), Seccomp: spec.Seccomp{Kind: spec.SeccompOff},
		},
	}
}

func (b *bench) sh(script string) spec.Spec { return b.spec("sh", "-c", script) }

// command returns a command of user 0.
func command(args ...string) spec.Command {
	return spec.Command{Args: args, Env: []string{"PATH=/bin"}, User: "0", Group: "0"}
}

// app is a container with a started main process.
type app struct {
	b    *bench
	c    spec.Container
	main spec.Running
}

// container makes a container of the bench's runtime.
func (b *bench) container(s spec.Spec) (spec.Container, error) {
	return b.runtime.Container(s)
}

// try starts a container. After an error it destroys the container, and checks that nothing is
// left of it.
func (b *bench) try(s spec.Spec, stdio spec.Stdio) (*app, error) {
	c, err := b.container(s)
	if err != nil {
		return nil, err
	}
	main, err := c.Start(stdio)
	if err == nil {
		return &app{b: b, c: c, main: main}, nil
	}
	if left := processesIn(s.Cgroup); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("containertest: processes %q are left of a start that has failed", left))
	}
	return nil, errors.Join(err, c.Destroy())
}

// start starts a container, which is killed and destroyed at the case's end.
func (b *bench) start(s spec.Spec, stdio spec.Stdio) *app {
	b.t.Helper()
	a, err := b.try(s, stdio)
	must(b.t, err)
	b.t.Cleanup(func() { must(b.t, a.end()) })
	return a
}

// end kills the processes of a container, and destroys it.
func (a *app) end() error {
	if err := a.kill(); err != nil {
		return err
	}
	if _, err := wait(a.main); err != nil {
		return err
	}
	return a.c.Destroy()
}

// kill kills the container as the supervisor does: until no process is left.
func (a *app) kill() error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeLimit); ; <-tick.C {
		if err := a.c.Kill(); err != nil {
			return err
		}
		pids, err := a.c.PIDs()
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %d survive Kill", pids)
		}
	}
}

// wait waits for a process's end.
func wait(child spec.Running) (syscall.WaitStatus, error) {
	select {
	case <-child.Done():
		return child.Status(), nil
	case <-time.After(timeLimit):
		return 0, fmt.Errorf("process %d does not end", child.PID())
	}
}

// init returns the parent of commands: the pod's init, or this program.
func (b *bench) init() int {
	b.t.Helper()
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	cmd, err := a.tryExec(command("sleep", "1000"), spec.Stdio{})
	must(b.t, err)
	return parent(cmd.PID())
}

// inPod returns a process's number in the pod's PID namespace, of its number here.
func (b *bench) inPod(pid int) int {
	b.t.Helper()
	numbers := b.numbers(pid)
	return numbers[min(1, len(numbers)-1)]
}

// innermost returns the number of a process in its own PID namespace.
func (b *bench) innermost(pid int) int {
	b.t.Helper()
	numbers := b.numbers(pid)
	return numbers[len(numbers)-1]
}

// numbers are a process's, in this PID namespace and in those below it.
func (b *bench) numbers(pid int) (all []int) {
	b.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b.t, err)
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	for _, text := range strings.Fields(line) {
		number, err := strconv.Atoi(text)
		must(b.t, err)
		all = append(all, number)
	}
	return all
}

// result is a process's output to stdout and stderr, and its exit status.
type result struct {
	text   string
	status syscall.WaitStatus
}

// collect starts a process with a pipe, and returns when the process has ended and every process
// has closed the pipe.
func collect(start func(spec.Stdio) (spec.Running, error)) (r result, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return r, err
	}
	defer out.Close()
	child, err := start(spec.Stdio{Stdout: in, Stderr: in})
	if err := errors.Join(err, in.Close(), out.SetReadDeadline(time.Now().Add(timeLimit))); err != nil {
		return r, err
	}
	text, err := io.ReadAll(out)
	if err != nil {
		return r, err
	}
	r.text = string(text)
	r.status, err = wait(child)
	return r, err
}

// tryRun runs a container to its end, and destroys it.
func (b *bench) tryRun(s spec.Spec) (result, error) {
	var a *app
	r, err := collect(func(stdio spec.Stdio) (child spec.Running, err error) {
		if a, err = b.try(s, stdio); err == nil {
			child = a.main
		}
		return child, err
	})
	if a != nil {
		err = errors.Join(err, a.end())
	}
	return r, err
}

func (b *bench) run(s spec.Spec) result {
	b.t.Helper()
	r, err := b.tryRun(s)
	must(b.t, err)
	return r
}

// tryExec starts a command.
func (a *app) tryExec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	return a.c.Exec(cmd, stdio)
}

// exec runs a command to its end.
func (a *app) exec(cmd spec.Command) result {
	a.b.t.Helper()
	r, err := collect(func(stdio spec.Stdio) (spec.Running, error) { return a.tryExec(cmd, stdio) })
	must(a.b.t, err)
	return r
}

// wantRun runs an app that must write want and exit with 0.
func (b *bench) wantRun(s spec.Spec, want string) {
	b.t.Helper()
	if r := b.run(s); r.text != want || r.status != 0 {
		b.t.Errorf("the app ends with status %#x and writes\n%s\nwant\n%s", r.status, r.text, want)
	}
}

// wantExec runs a command that must write want and exit with 0.
func (a *app) wantExec(cmd spec.Command, want string) {
	a.b.t.Helper()
	if r := a.exec(cmd); r.text != want || r.status != 0 {
		a.b.t.Errorf("the command ends with status %#x and writes\n%s\nwant\n%s", r.status, r.text, want)
	}
}

// wantBoth runs the script as an app of the spec, and as a command in an app of the spec.
func (b *bench) wantBoth(s spec.Spec, script, want string) {
	b.t.Helper()
	asApp, around, other := s, s, b.spec("sleep", "1000")
	asApp.Process.Args, around.Process.Args = []string{"sh", "-c", script}, other.Process.Args
	around.Name, around.Cgroup = other.Name, other.Cgroup
	b.wantRun(asApp, want)
	cmd := command("sh", "-c", script)
	p := s.Process
	cmd.User, cmd.Group, cmd.SupplementaryGID, cmd.Dir, cmd.Env = p.User, p.Group, p.SupplementaryGID, p.Dir, p.Env
	b.start(around, spec.Stdio{}).wantExec(cmd, want)
}

// eventually waits until a condition holds.
func (b *bench) eventually(what string, holds func() bool) {
	b.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeLimit); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: not within %v", what, timeLimit)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
