package container

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
)

// probe tries every way there is to read another process and prints those that
// work, one to a line. It is this test program inside a container.
func probe(target string) {
	pid, err := strconv.Atoi(target)
	if err != nil {
		fmt.Fprintln(os.Stdout, "probe:", err)
		return
	}
	runtime.LockOSThread()
	for name, try := range map[string]func(int) error{
		"root": openProc("root/"), "cwd": openProc("cwd/"), "environ": readProc("environ"), "mem": readProc("mem"),
		"fd": openProc("fd/0"), "exe": openProc("exe"), "maps": readProc("maps"), "ptrace": ptrace, "vm_readv": vmRead, "pidfd_getfd": getFD,
	} {
		if err := try(pid); err == nil {
			fmt.Fprintln(os.Stdout, "can", name)
		}
	}
	fmt.Fprintln(os.Stdout, "signal:", unix.Kill(pid, 0))
}

func procPath(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

func openProc(name string) func(int) error {
	return func(pid int) error {
		f, err := os.Open(procPath(pid, name))
		if err == nil {
			f.Close()
		}
		return err
	}
}

// readProc counts opening mem as reading it: what fails then is the address 0.
func readProc(name string) func(int) error {
	return func(pid int) error {
		f, err := os.Open(procPath(pid, name))
		if err != nil || name == "mem" {
			return err
		}
		defer f.Close()
		_, err = io.ReadAll(f)
		return err
	}
}

func ptrace(pid int) error {
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	return unix.PtraceDetach(pid)
}

// vmRead reads what cannot be mapped: EFAULT says that it was allowed to try.
func vmRead(pid int) error {
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(nil)), Len: 8}}, 0)
	if err == unix.EFAULT {
		return nil
	}
	return err
}

func getFD(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	got, err := unix.PidfdGetfd(fd, 0, 0)
	if err == nil {
		unix.Close(got)
	}
	return err
}

// probeRoot is a root with busybox and this test program.
func probeRoot(t *testing.T) string {
	t.Helper()
	root := busyboxRoot(t)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "probe"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// Apps of a pod share its PID namespace and must not share data: nobody reads
// the supervisor, another app or a command in it, whoever he is. Signals pass.
func TestProcessesCannotReadEachOther(t *testing.T) {
	r := newRuntime(t)
	if !r.landlock {
		t.Fatalf("the kernel has Landlock ABI %d; the rule needs 2", landlockABI())
	}
	root := probeRoot(t)
	other, otherPID := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	command, err := other.Exec(rootCommand("sleep", "1000"), supervisor.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]int{"supervisor": os.Getpid(), "other app": otherPID, "command in other app": command.PID()}
	for name, change := range map[string]func(*spec.Process){
		"root":                      func(*spec.Process) {},
		"root without capabilities": func(p *spec.Process) { p.Capabilities = nil },
		"uid 1000":                  func(p *spec.Process) { p.User, p.Group = "1000", "1000" },
		"root with CAP_SYS_PTRACE":  func(p *spec.Process) { p.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_PTRACE") },
		"root with CAP_PERFMON":     func(p *spec.Process) { p.Capabilities = append(spec.DefaultCapabilities(), "CAP_PERFMON") },
	} {
		for target, pid := range targets {
			t.Run(name+" reads "+target, func(t *testing.T) {
				s := testSpec(root, "/probe", "probe", strconv.Itoa(pid))
				change(&s.Process)
				checkProbe(t, r, s)
			})
		}
	}
}

func checkProbe(t *testing.T, r *Runtime, s spec.Spec) {
	t.Helper()
	text, status := output(t, r, s)
	if strings.Contains(text, "can ") || !strings.Contains(text, "signal:") || status.ExitStatus() != 0 {
		t.Errorf("probe ended with %d and says:\n%s", status.ExitStatus(), text)
	}
	if s.Process.User == "0" && len(s.Process.Capabilities) > 0 && !strings.Contains(text, "signal: <nil>") {
		t.Errorf("no signal passes:\n%s", text)
	}
}

// The probe must be able to see something, or it proves nothing.
func TestProbeReadsItself(t *testing.T) {
	r := newRuntime(t)
	text, _ := output(t, r, testSpec(probeRoot(t), "sh", "-c", "exec /probe probe $$"))
	for _, way := range []string{"root", "cwd", "environ", "mem", "fd", "exe", "maps", "vm_readv", "pidfd_getfd"} {
		if !strings.Contains(text, "can "+way+"\n") {
			t.Errorf("cannot read itself by %s:\n%s", way, text)
		}
	}
}

// The domain must change nothing else: renames and links between directories work.
func TestDomainLeavesRenameAndLink(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	s := testSpec(root, "sh", "-ec", "mkdir /a /b; echo x >/a/f; mv /a/f /b/f; ln /b/f /a/l; mv /b /a/b; cat /a/b/f; mkdir /v/d; echo y >/v/f; mv /v/f /v/d/f; ln /v/d/f /v/l; cat /v/l")
	s.Mounts = []spec.Mount{{Source: t.TempDir(), Target: "/v", Type: "bind", Recursive: true}}
	if text, status := output(t, r, s); text != "x\ny\n" || status.ExitStatus() != 0 {
		t.Errorf("exit status %d:\n%s", status.ExitStatus(), text)
	}
}

// A working directory is the app's word, or a link that it has made: neither the
// first process nor a command gets out of the root by it, with a domain or without.
func TestWorkingDirectoryStaysInRoot(t *testing.T) {
	for name, landlock := range map[string]bool{"with a domain": true, "without": false} {
		r, root := newRuntime(t), busyboxRoot(t)
		r.landlock = r.landlock && landlock
		other := testSpec(root, "sleep", "1000")
		other.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_PTRACE", "CAP_NET_ADMIN")
		_, otherPID := startSleeper(t, r, other)
		c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
		for link, target := range map[string]string{"root": "/proc/1/root", "cwd": "/proc/1/cwd", "other": procPath(otherPID, "root")} {
			if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{target, "/" + link} {
				t.Run(name+" "+dir, func(t *testing.T) { checkDirectory(t, r, c, root, dir) })
			}
		}
	}
}

func checkDirectory(t *testing.T, r *Runtime, c supervisor.Container, root, dir string) {
	t.Helper()
	cmd := rootCommand("true")
	cmd.Dir = dir
	if p, err := c.Exec(cmd, supervisor.Stdio{}); err == nil {
		t.Error("a command starts there")
		_, _ = unix.Wait4(p.PID(), nil, 0, nil)
		p.Release()
	} else if !strings.Contains(err.Error(), "working directory "+strconv.Quote(dir)) {
		t.Errorf("error of a command: %v", err)
	}
	s := testSpec(root, "true")
	s.Process.Dir = dir
	app := containerOf(t, r, s)
	if p, err := app.Start(supervisor.Stdio{}); err == nil {
		t.Error("an app starts there")
		_, _ = unix.Wait4(p.PID(), nil, 0, nil)
		p.Release()
	} else if !strings.Contains(err.Error(), "working directory "+strconv.Quote(dir)) {
		t.Errorf("error of an app: %v", err)
	}
	if err := app.Destroy(); err != nil {
		t.Error(err)
	}
}
