package container

import (
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/spec"
)

// The limits of a pod's cgroup are its apps' sum, and it goes with what is left in it.
func TestPodCgroupBoundsItsApps(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	s := testSpec(root, "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
	pod, err := cgroup.NewPodGroup(s.Cgroup, spec.Resources{MemoryLimit: 64 << 20, CPUQuota: 50_000, CPUPeriod: 100_000, CPUShares: 512})
	if err == nil {
		err = pod.Make()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Cgroup += "/app"
	s.Resources = spec.Resources{MemoryLimit: 512 << 20}
	c := containerOf(t, r, s)
	text, status := run(t, c)
	if status.Signal() != unix.SIGKILL || !c.OOMKilled() {
		t.Errorf("status %#x:\n%s", status, text)
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
	if err := pod.Remove(); err != nil {
		t.Error(err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		if left, _ := filepath.Glob(pattern + strings.TrimSuffix(s.Cgroup, "/app")); left != nil {
			t.Errorf("left: %s", left)
		}
	}
}

// An app that divides its own cgroup of version 2, as systemd does, is still
// entered, killed and removed.
func TestExecEntersACgroupThatTheAppHasDivided(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	if err := os.Symlink("busybox", filepath.Join(root, "bin/mount")); err != nil {
		t.Fatal(err)
	}
	up, ready, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	s := testSpec(root, "sh", "-ec", `mount -t cgroup2 cgroup2 /tmp
		cd /tmp/$(grep ^0:: /proc/self/cgroup | cut -d: -f3)
		mkdir init other
		echo 0 >init/cgroup.procs
		for c in $(cat cgroup.controllers); do echo +$c >cgroup.subtree_control; done
		exec sleep 1000 >/dev/null 2>&1`)
	s.Privileged = true
	s.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN")
	c, pid := startSleeper(t, r, s, ready)
	ready.Close()
	if text, err := io.ReadAll(up); err != nil || len(text) > 0 {
		t.Fatalf("%v: %s", err, text)
	}
	text, status := execOutput(t, c, rootCommand("cat", "/proc/self/cgroup"))
	want, err := os.ReadFile(procPath(pid, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) || status.ExitStatus() != 0 {
		t.Errorf("a command is in\n%s\nthe app in\n%s", text, want)
	}
}

// Where the kernel cannot make a process in a cgroup, it moves there. The first attempt leaves no terminal.
func TestExecMovesIntoTheCgroup(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes lost files
	running := startUnwatched(t)
	cmd := rootCommand("sh", "-c", "cmp /proc/self/cgroup "+procPath(inPod(t, running.initPID), "cgroup"))
	execOutput(t, running, cmd) // libraries keep what they open the first time
	for _, terminal := range []bool{false, true} {
		before, _ := held(t)
		text, state := moved(t, running, cmd, terminal)
		if state != 0 || text != "" {
			t.Errorf("terminal %t: a command is not in the app's cgroups: %v, %s", terminal, state, text)
		}
		if after := leaked(t, before); len(after) > 0 {
			t.Errorf("terminal %t: left are %q", terminal, after)
		}
	}
}

// moved returns what a command writes that the kernel cannot make in the container's cgroup, and how it ends.
func moved(t *testing.T, c *container, cmd spec.Command, terminal bool) (string, syscall.WaitStatus) {
	t.Helper()
	p := c.spec.Process
	p.Args, p.Env = cmd.Args, cmd.Env
	entrance, err := c.newEntrance(&p, c.joinFlags(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer entrance.close()
	files, err := c.openCgroupFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer files.close()
	noCgroup, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer noCgroup.Close()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	unified := files.unified
	defer unified.Close()
	files.unified = noCgroup
	j := &joining{entrance: entrance, stdio: spec.Stdio{Stdout: in, Terminal: terminal}, cgroupFiles: files}
	started, err := j.enter()
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	if terminal {
		defer j.master.Close()
		out = j.master
	}
	text, _ := io.ReadAll(out) // EIO is the end of a terminal
	<-started.Done()
	return string(text), started.Status()
}
