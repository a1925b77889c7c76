package container

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
)

// newRuntime gives a runtime on a tmpfs of its own.
func newRuntime(t testing.TB) *Runtime {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	r, err := NewRuntime(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
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
	for _, name := range []string{"sh", "true", "cat", "id", "ls", "pwd", "sleep", "grep", "env", "kill", "head", "stat", "test", "dd", "mkdir", "mv", "ln"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var testCgroup atomic.Int64

func testSpec(root string, args ...string) Spec {
	n := testCgroup.Add(1)
	return Spec{
		Name: fmt.Sprintf("app%d", n), Root: root, Cgroup: fmt.Sprintf("/stager-test-%d-%d", os.Getppid(), n),
		Process: Process{
			Args: args, Env: []string{"PATH=/bin"}, User: "0", Group: "0", Capabilities: DefaultCapabilities(),
		},
	}
}

// output runs a container to its end and gives what it wrote and its status.
func output(t testing.TB, r *Runtime, spec Spec) (string, unix.WaitStatus) {
	t.Helper()
	c := r.Container(spec)
	defer func() {
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := c.Start(supervisor.Stdio{Stdout: in, Stderr: in})
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(p.PID(), &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	p.Release()
	return string(text), status
}

func TestStart(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	f, err := DefaultFilter(DefaultCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	spec := testSpec(root, "sh", "-c", "id; grep -E 'Cap|Secc|NoNew' /proc/self/status; ls -l /proc/self/fd; ls -l /dev; env; pwd; cat /proc/self/mountinfo; exit 42")
	spec.Process.Seccomp = f
	text, status := output(t, r, spec)
	t.Log(text)
	if status.ExitStatus() != 42 {
		t.Errorf("exit status %v", status)
	}
	for _, want := range []string{"uid=0", "CapBnd:\t00000000a80425fb", "CapEff:\t00000000a80425fb", "Seccomp:\t2", "NoNewPrivs:\t0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	r, root := newRuntime(b), busyboxRoot(b)
	f, err := DefaultFilter(DefaultCapabilities())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		spec := testSpec(root, "true")
		spec.Process.Seccomp = f
		output(b, r, spec)
	}
}

// startSleeper starts a container that stays, and gives the function that ends it.
func startSleeper(t testing.TB, r *Runtime, spec Spec) (supervisor.Container, int) {
	t.Helper()
	c := r.Container(spec)
	p, err := c.Start(supervisor.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
		var status unix.WaitStatus
		_, _ = unix.Wait4(p.PID(), &status, 0, nil)
		p.Release()
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	})
	return c, p.PID()
}

// execOutput runs a command in a running container.
func execOutput(t testing.TB, c supervisor.Container, cmd supervisor.Command) (string, unix.WaitStatus) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := c.Exec(cmd, supervisor.Stdio{Stdout: in, Stderr: in})
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(p.PID(), &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	p.Release()
	return string(text), status
}

func rootCommand(args ...string) supervisor.Command {
	return supervisor.Command{Args: args, Env: []string{"PATH=/bin"}, User: "0", Group: "0"}
}

func TestExec(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	cmd := rootCommand("sh", "-c", "id; grep -E 'Cap|Secc|NoNew|Groups' /proc/self/status; ls /proc/self/fd; exit 7")
	cmd.User, cmd.Group, cmd.SupplementaryGID = "1000", "2000", []int{20, 21}
	text, status := execOutput(t, c, cmd)
	if status.ExitStatus() != 7 || !strings.Contains(text, "uid=1000 gid=2000 groups=20,21") || !strings.Contains(text, "CapEff:\t0000000000000000") {
		t.Errorf("exit status %d, output\n%s", status.ExitStatus(), text)
	}
}

func BenchmarkExec(b *testing.B) {
	r, root := newRuntime(b), busyboxRoot(b)
	c, _ := startSleeper(b, r, testSpec(root, "sleep", "1000"))
	for b.Loop() {
		execOutput(b, c, rootCommand("true"))
	}
}
