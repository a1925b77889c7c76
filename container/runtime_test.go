package container

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// directVariable has the tests use direct starts.
const directVariable = "CONTAINER_TEST_DIRECT"

func startsDirectly() bool { return os.Getenv(directVariable) != "" }

// newRuntime returns a runtime on a new tmpfs.
func newRuntime(t testing.TB) *Runtime {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	r := NewRuntime(fmt.Sprintf("/stager-test-pod-%s-%d", testRun, testCgroup.Add(1)), initOf(t), slog.New(slog.DiscardHandler))
	if startsDirectly() {
		r.SelectStarts(spec.DirectStarts)
	}
	if err := r.Prepare(dir, spec.Resources{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// busyboxRoot is a root file system with Debian's static busybox in it.
func busyboxRoot(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "tmp"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "/bin/busybox", filepath.Join(root, "bin/busybox")).CombinedOutput(); err != nil {
		t.Fatalf("copy busybox (Debian's busybox-static): %s", out)
	}
	for _, name := range []string{"sh", "true", "cat", "id", "ls", "pwd", "sleep", "grep", "env", "kill", "head", "stat", "readlink", "tty", "stty", "cut", "test", "dd", "mkdir", "mv", "ln", "rmdir", "find", "sort"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// testRun is in the names of cgroups, which test programs that run at the same time share: each is PID 1, and has no
// parent's number either.
var (
	testRun    = strings.ToLower(rand.Text()[:10])
	testCgroup atomic.Int64
)

func testSpec(root string, args ...string) spec.Spec {
	n := testCgroup.Add(1)
	return spec.Spec{
		Name: fmt.Sprintf("app%d", n), Root: root, Cgroup: fmt.Sprintf("/stager-test-%s-%d", testRun, n),
		Process: spec.Process{
			Args: args, Env: []string{"PATH=/bin"}, User: "0", Group: "0", Capabilities: spec.DefaultCapabilities(),
			Seccomp: spec.Seccomp{Kind: spec.SeccompOff},
		},
	}
}

func containerOf(t testing.TB, r *Runtime, s spec.Spec) *container {
	t.Helper()
	c, err := r.Container(s)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*container)
}

// output runs a container to its end and returns its output and its status.
func output(t testing.TB, r *Runtime, s spec.Spec) (string, syscall.WaitStatus) {
	t.Helper()
	c := containerOf(t, r, s)
	defer func() {
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}()
	return run(t, c)
}

// run starts a container and waits for its end.
func run(t testing.TB, c spec.Container) (string, syscall.WaitStatus) {
	t.Helper()
	return runIn(t, c, nil)
}

// runIn is run with a standard input.
func runIn(t testing.TB, c spec.Container, stdin *os.File) (string, syscall.WaitStatus) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := c.Start(spec.Stdio{Stdin: stdin, Stdout: in, Stderr: in})
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	status := p.Status()
	return string(text), status
}

// All have the caller's limit of locked memory, which device policies of cgroup
// v2 take from the caller.
func TestLockedMemoryIsTheCallers(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
			t.Error(err)
		}
	})
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	limits := []string{"grep", "locked memory", "/proc/self/limits"}
	app, _ := output(t, r, testSpec(root, limits...))
	command, _ := execOutput(t, c, rootCommand(limits...))
	for who, text := range map[string]string{"second app": app, "command": command} {
		if got := strings.Join(strings.Fields(text), " "); !strings.HasPrefix(got, "Max locked memory 65536 ") {
			t.Errorf("%s: %q", who, got)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	r, root := newRuntime(b), busyboxRoot(b)
	for b.Loop() {
		s := testSpec(root, "true")
		s.Process.Seccomp = spec.Seccomp{}
		output(b, r, s)
	}
}

// startSleeper starts a container that stays until the test's end. A file is
// its stdout and stderr.
func startSleeper(t testing.TB, r *Runtime, s spec.Spec, out ...*os.File) (spec.Container, int) {
	t.Helper()
	c := containerOf(t, r, s)
	var stdio spec.Stdio
	for _, f := range out {
		stdio.Stdout, stdio.Stderr = f, f
	}
	p, err := c.Start(stdio)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
		<-p.Done()
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	})
	return c, p.PID()
}

// execOutput runs a command in a running container.
func execOutput(t testing.TB, c spec.Container, cmd spec.Command) (string, syscall.WaitStatus) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var p spec.Running
	started := make(chan struct{})
	go func() { // on a goroutine of its own, as the supervisor does
		defer close(started)
		p, err = c.Exec(cmd, spec.Stdio{Stdout: in, Stderr: in})
	}()
	<-started
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	status := p.Status()
	return string(text), status
}

func rootCommand(args ...string) spec.Command {
	return spec.Command{Args: args, Env: []string{"PATH=/bin"}, User: "0", Group: "0"}
}

func BenchmarkExec(b *testing.B) {
	for name, filter := range map[string]spec.Seccomp{"no filter": {Kind: spec.SeccompOff}, "default filter": {}} {
		b.Run(name, func(b *testing.B) {
			r, s := newRuntime(b), testSpec(busyboxRoot(b), "sleep", "1000")
			s.Process.Seccomp = filter
			c, _ := startSleeper(b, r, s)
			for b.Loop() {
				execOutput(b, c, rootCommand("true"))
			}
		})
	}
}

// A command is where the app's own process is.
func TestExecJoinsEverything(t *testing.T) {
	r := newRuntime(t)
	s := testSpec(busyboxRoot(t), "sleep", "1000")
	s.OOMScoreAdj = 77
	s.Process.NoNewPrivileges = true
	c, pid := startSleeper(t, r, s)
	cmd := rootCommand("sh", "-c", `
		for n in mnt pid ipc uts net cgroup user; do echo $n $(readlink /proc/self/ns/$n); done
		cmp /proc/self/cgroup /proc/$MAIN/cgroup && cat /proc/self/oom_score_adj
		grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status
		ls -l /proc/self/fd | grep -c -E ' [0-9]+ -> '
		grep -E 'proc/sys|proc/keys|/sys ' /proc/self/mountinfo | cut -d' ' -f5,6`)
	cmd.Env = append(cmd.Env, fmt.Sprintf("MAIN=%d", inPod(t, pid)))
	text, _ := execOutput(t, c, cmd)
	var want strings.Builder
	for _, n := range []string{"mnt", "pid", "ipc", "uts", "net", "cgroup", "user"} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, n))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&want, n, link)
	}
	want.WriteString("77\n")
	if !strings.HasPrefix(text, want.String()) || !strings.Contains(text, "NoNewPrivs:\t1") || !strings.Contains(text, "CapBnd:\t00000000a80425fb") {
		t.Errorf("a command is in\n%s\nthe app is in\n%s", text, &want)
	}
}

// A link in the image must not make the supervisor read what it alone may read.
func TestNamesAreNotReadFromProc(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	if err := unix.Sethostname([]byte("proc:x:7:")); err != nil { // the test's own UTS namespace
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/sys/kernel/hostname", filepath.Join(root, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	cmd := rootCommand("true")
	cmd.User = "proc"
	if _, err := c.Exec(cmd, spec.Stdio{}); err == nil || !strings.Contains(err.Error(), `user "proc" is neither`) {
		t.Errorf("error %v", err)
	}
}
