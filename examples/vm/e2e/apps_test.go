package e2e

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"kurma.io/stager/names"
)

type object map[string]any

// shell is an app that runs a shell script as root.
func (b *host) shell(name, script string, more object) object {
	app := object{"exec": []string{"/bin/sh", "-c", script}, "user": "0", "group": "0"}
	for key, value := range more {
		app[key] = value
	}
	return object{"name": name, "image": object{"id": b.ids["busybox"]}, "app": app}
}

// apps is the pod of TestAppsRunInAVirtualMachine. keep is a folder of the host.
func (b *host) apps(keep string) object {
	work := b.shell("work", "echo of the host >/keep/written; trap 'echo work is asked to stop; exit 0' TERM; while :; do sleep 1; done", nil)
	work["mounts"] = []object{{"volume": "keep", "path": "/keep"}}
	talk := b.shell("talk", `while read -r line; do echo "heard $line"; done`, nil)
	talk["annotations"] = []object{{"name": names.StdinAnnotation, "value": "stream"}}
	return object{
		"acVersion": "0.8.11", "acKind": "PodManifest",
		"apps": []object{
			work, talk,
			b.shell("fail", "seq 1 20000; echo to stderr >&2; exit 3", nil),
			b.shell("greedy", "dd if=/dev/zero of=/dev/null bs=64M", object{
				"isolators": []object{{"name": "resource/memory", "value": object{"limit": "32Mi"}}},
			}),
		},
		"volumes": []object{{"name": "keep", "kind": "host", "source": keep}},
	}
}

// Apps of busybox in one virtual machine, which dies in the end.
func TestAppsRunInAVirtualMachine(t *testing.T) {
	b := newHost(t, "busybox")
	keep := t.TempDir()
	p := b.up("apps", b.write("apps.json", b.apps(keep)))
	for _, test := range []struct {
		name string
		run  func(*testing.T, *pod)
	}{
		{"the kernel is the guest's", testKernel},
		{"a volume is shared with the host", func(t *testing.T, p *pod) { testVolume(t, p, keep) }},
		{"an app's end and output are those of the app", testEnd},
		{"a limit of memory holds in the guest", testMemory},
		{"run relays stdin, stdout, stderr and the exit status", testRunStreams},
		{"run relays signals", testRunSignal},
		{"an app's signal to PID 1 does not stop the pod", testSignalToSupervisor},
		{"run has a terminal", testRunTerminal},
		{"the command of a caller that is killed is killed", testCallerKilled},
		{"a caller that reads nothing blocks no other", testStalledCaller},
		{"attach types into an app", testAttachInput},
		{"logs follow an app", testLogsFollow},
		{"the death of the virtual machine is reported", testDeath},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := p.t
			p.t = t
			defer func() { p.t = old }()
			test.run(t, p)
		})
	}
}

func testKernel(t *testing.T, p *pod) {
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		t.Fatal(err)
	}
	r := finish(t, p.exec("work", "uname", "-r"))
	if r.code != 0 || !strings.HasSuffix(r.stdout, "-cloud-amd64\n") || strings.TrimSpace(r.stdout) == unix.ByteSliceToString(host.Release[:]) {
		t.Errorf("%+v, want another kernel than %s", r, host.Release)
	}
}

func testSignalToSupervisor(t *testing.T, p *pod) {
	r := finish(t, p.exec("work", "sh", "-c", "kill -TERM 1; kill -INT 1; kill -QUIT 1; sleep 3; echo lives"))
	if r.code != 0 || r.stdout != "lives\n" {
		t.Errorf("%+v", r)
	}
	if r := p.run("logs", p.name, "work"); r.code != 0 || r.stdout != "" {
		t.Errorf("the app's log: %+v", r)
	}
}

func testVolume(t *testing.T, p *pod, keep string) {
	file := filepath.Join(keep, "written")
	eventually(t, "the app's file", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == "of the host\n"
	})
	if err := os.WriteFile(filepath.Join(keep, "given"), []byte("by the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := "cat /keep/given && chown 123:456 /keep/written && ln /keep/written /keep/linked && mv /keep/given /keep/moved"
	if r := finish(t, p.exec("work", "sh", "-c", script)); r.code != 0 || r.stdout != "by the host" {
		t.Errorf("%+v", r)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil || st.Uid != 123 || st.Gid != 456 || st.Nlink != 2 {
		t.Errorf("owner %d:%d, %d links, %v", st.Uid, st.Gid, st.Nlink, err)
	}
	if _, err := os.Stat(filepath.Join(keep, "moved")); err != nil {
		t.Error(err)
	}
}

func testEnd(t *testing.T, p *pod) {
	if s := p.exited("fail"); s.Code != 3 || s.PID != 0 {
		t.Errorf("%+v, want exit code 3", s)
	}
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintln(&want, i+1)
	}
	r := p.run("logs", p.name, "fail")
	if r.stdout != want.String() || r.stderr != "to stderr\n" {
		t.Errorf("%d bytes of stdout, want %d; stderr %q", len(r.stdout), want.Len(), r.stderr)
	}
}

func testMemory(t *testing.T, p *pod) {
	if s := p.exited("greedy"); s.Code != 137 || s.Reason != "oom-killed" {
		t.Errorf("%+v, want it to be killed for memory", s)
	}
	if r := p.run("status", "--isolators", p.name, "greedy"); !strings.Contains(r.stdout, "enforced") {
		t.Errorf("isolators: %+v", r)
	}
}

func testRunStreams(t *testing.T, p *pod) {
	input := make([]byte, 3<<20)
	_, _ = rand.Read(input)
	cmd := p.command("exec", "--interactive", p.name, "work", "--", "sh", "-c", "cat; echo done >&2; exit 42")
	cmd.Stdin = bytes.NewReader(input)
	r := finish(t, cmd)
	if r.code != 42 || r.stderr != "done\n" || r.stdout != string(input) {
		t.Errorf("exit status %d, stderr %q, %d bytes of stdout that are the input: %t", r.code, r.stderr, len(r.stdout), r.stdout == string(input))
	}
	if r := finish(t, p.exec("work", "/missing")); r.code != 127 || !strings.HasPrefix(r.stderr, "run: ") {
		t.Errorf("a missing program: %+v", r)
	}
	if r := finish(t, p.exec("missing", "true")); r.code == 0 {
		t.Errorf("a missing app: %+v", r)
	}
}

// begin starts a command and waits for its first line of output.
func begin(t *testing.T, cmd *exec.Cmd) io.ReadCloser {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	line := make([]byte, 3)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return out
}

func testRunSignal(t *testing.T, p *pod) {
	cmd := p.exec("work", "sh", "-c", "trap 'echo caught; exit 9' USR1; echo up; while :; do sleep 0.1; done")
	out := begin(t, cmd)
	if err := cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	_ = cmd.Wait()
	if err != nil || string(text) != "caught\n" || cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("%q, %v, exit status %d", text, err, cmd.ProcessState.ExitCode())
	}
}

func testRunTerminal(t *testing.T, p *pod) {
	cmd := p.command("exec", "-it", p.name, "work", "--", "sh")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 91, Rows: 17})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var shown safeBuffer
	go func() { _, _ = io.Copy(&shown, terminal) }()
	see := func(text string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%q on the terminal", text), func() bool { return strings.Contains(shown.String(), text) })
	}
	see("# ")
	fmt.Fprint(terminal, "stty size; tty\n")
	see("17 91")
	see("/dev/pts/")
	if err := pty.Setsize(terminal, &pty.Winsize{Cols: 44, Rows: 22}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new size", func() bool {
		fmt.Fprint(terminal, "stty size\n")
		return strings.Contains(shown.String(), "22 44")
	})
	fmt.Fprint(terminal, "echo be'gins'; sleep 1000\n")
	see("begins")
	fmt.Fprint(terminal, "\x03") // ^C, which the guest's terminal makes a signal of
	fmt.Fprint(terminal, "exit 5\n")
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("%v\n%s", err, shown.String())
	}
}

func testCallerKilled(t *testing.T, p *pod) {
	cmd := p.exec("work", "sh", "-c", "echo up; exec sleep 4711")
	begin(t, cmd)
	runs := func() bool { return strings.Contains(finish(t, p.exec("work", "ps")).stdout, "sleep 4711") }
	if !runs() {
		t.Error("the command does not run")
	}
	// The launcher's call-in is this process: it becomes it.
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is gone", func() bool { return !runs() })
}

func testStalledCaller(t *testing.T, p *pod) {
	cmd := p.exec("work", "sh", "-c", "echo up; yes")
	begin(t, cmd) // and nothing is read any more
	if r := finish(t, p.exec("work", "echo", "not blocked")); r.stdout != "not blocked\n" {
		t.Errorf("%+v", r)
	}
}

func testAttachInput(t *testing.T, p *pod) {
	cmd := p.command("attach", p.name, "talk")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var shown safeBuffer
	cmd.Stdout = &shown
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	fmt.Fprintln(input, "a word")
	eventually(t, "the answer", func() bool { return strings.Contains(shown.String(), "heard a word") })
	if logs := p.logs("talk"); !strings.Contains(logs, "heard a word\n") {
		t.Errorf("logs: %q", logs)
	}
}

func testLogsFollow(t *testing.T, p *pod) {
	cmd := p.command("logs", "--follow", "--tail", "0", p.name, "talk")
	var shown safeBuffer
	cmd.Stdout = &shown
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	attach := p.command("attach", p.name, "talk")
	input, err := attach.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := attach.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = attach.Process.Kill(); _ = attach.Wait() })
	eventually(t, "a new line", func() bool {
		fmt.Fprintln(input, "another")
		return strings.Contains(shown.String(), "heard another")
	})
}

func testDeath(t *testing.T, p *pod) {
	cmd := p.exec("work", "sh", "-c", "echo up; sleep 1000")
	var messages safeBuffer
	cmd.Stderr = &messages
	begin(t, cmd)
	if err := unix.Kill(p.child("qemu-system-x86_64"), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 125 || messages.String() != "run: the virtual machine has ended\n" {
		t.Errorf("the caller of run got %d and %q", code, messages.String())
	}
	eventually(t, "the pod's end", func() bool { return strings.Contains(p.must("ps", "--all"), "exited") })
	if listed := p.must("ps", "--all", "--json"); !strings.Contains(listed, `"exit":{"code":1}`) {
		t.Errorf("ps: %s", listed)
	}
	want := "stager: the virtual machine has ended unexpectedly: qemu-system-x86_64: signal: killed\n"
	if log := p.stagerLog(); !strings.HasSuffix(log, want) {
		t.Errorf("the stager's log does not end with %q:\n%s", want, log)
	}
	if logs := p.logs("talk"); !strings.Contains(logs, "heard a word\n") {
		t.Errorf("logs after the end: %q", logs)
	}
}

// A stager that is killed takes the virtual machine with it.
func TestKilledStagerLeavesNoProcess(t *testing.T) {
	b := newHost(t, "busybox")
	p := b.up("killed", b.write("killed.json", object{
		"acVersion": "0.8.11", "acKind": "PodManifest", "apps": []object{b.shell("sleep", "sleep 1000", nil)},
	}))
	if err := unix.Kill(p.stager, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of qemu and virtiofsd", func() bool {
		for _, pid := range p.helper {
			if unix.Kill(pid, 0) == nil {
				return false
			}
		}
		return len(p.helper) == 2
	})
	eventually(t, "the pod's end", func() bool { return strings.Contains(p.must("ps", "--all"), "exited") })
}

// The stager logs why a pod cannot start.
func TestFailedStartIsReported(t *testing.T) {
	b := newHost(t, "busybox")
	r := b.run("run", "--detach", "--name", "failed", b.write("failed.json", object{
		"acVersion": "0.8.11", "acKind": "PodManifest", "apps": []object{
			{"name": "a", "image": object{"id": b.ids["busybox"]}, "app": object{"exec": []string{"/missing"}, "user": "0", "group": "0"}},
		},
	}))
	if r.code != 127 || !strings.Contains(r.stderr, `start app "a": exec /missing: no such file or directory`) {
		t.Errorf("%+v", r)
	}
}
