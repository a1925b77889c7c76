package callins

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/supervisortest"
)

// timeLimit ends each process of a test and each wait: a test that hangs fails.
const timeLimit = 2 * time.Minute

// limited returns a context that ends after timeLimit, or after the test.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	limit := limited(t).Done()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within %v", what, timeLimit)
		}
	}
}

// testPod is a pod in a process of its own.
type testPod struct {
	t      *testing.T
	socket string
	cmd    *exec.Cmd
	events io.Reader // a byte when it listens, one when it is ready
}

// sleeper is an app that just runs.
var sleeper = testApp{Name: "app", Args: []string{"/bin/sleep", "infinity"}}

func newPod(t *testing.T, apps ...testApp) *testPod {
	t.Helper()
	p := listeningPod(t, apps...)
	p.await('r')
	return p
}

// listeningPod returns once the pod's socket is there, before it is ready.
func listeningPod(t *testing.T, apps ...testApp) *testPod {
	t.Helper()
	description, err := json.Marshal(apps)
	if err != nil {
		t.Fatal(err)
	}
	p := &testPod{t: t, socket: filepath.Join(t.TempDir(), "control.sock")}
	p.cmd = program(t, "pod", p.socket)
	cgroup := "/callins-test-" + strings.ToLower(rand.Text()[:10])
	p.cmd.Env = append(p.cmd.Env, podVariable+"="+string(description), cgroupVariable+"="+cgroup)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.events, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		// The pod may have been killed. What its processes have locked is free once they have ended: the pod ends then.
		runtime := supervisortest.NewRuntime(cgroup)
		err := runtime.Prepare("/", spec.Resources{})
		p.cmd.Wait()
		if err := errors.Join(err, runtime.Close()); err != nil {
			t.Error(err)
		}
	})
	p.await('l')
	return p
}

func (p *testPod) await(want byte) {
	p.t.Helper()
	got := make([]byte, 1)
	if _, err := io.ReadFull(p.events, got); err != nil || got[0] != want {
		p.t.Fatalf("pod wrote %q, %v, want %q", got, err, want)
	}
}

// awaitEnded waits until count apps of the pod have ended, and returns the status then.
func (p *testPod) awaitEnded(count int) (status result) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%d apps have ended", count), func() bool {
		status = finish(p.t, p.caller("status", ""))
		if status.Code != 0 || status.Stderr != "" {
			p.t.Fatalf("status: %+v", status)
		}
		return strings.Count(status.Stdout, `"exited": true`) == count
	})
	return status
}

// program is the test program in another role.
func program(t *testing.T, role, socket string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limited(t), self, args...)
	cmd.WaitDelay = timeLimit // for the end of its output, once it has ended
	cmd.Env = append(os.Environ(), roleVariable+"="+role, socketVariable+"="+socket, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// caller is a call-in as a process, with settings, if any, on descriptor 3.
func (p *testPod) caller(role, settings string, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := program(p.t, role, p.socket, args...)
	if settings != "" {
		cmd.ExtraFiles = []*os.File{memory(p.t, settings)}
	}
	return cmd
}

func memory(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "settings")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return f
}

// result is what a caller left.
type result struct {
	Stdout, Stderr string
	Code           int
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	code := exitCode(t, cmd.Run())
	return result{stdout.String(), stderr.String(), code}
}

// exitCode is 128+N for a caller that signal N ended.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// shell makes settings for a shell command.
func shell(t *testing.T, script string, change ...func(map[string]any)) string {
	t.Helper()
	set := map[string]any{"exec": []string{"/bin/sh", "-c", script}, "user": "0", "group": "0"}
	for _, f := range change {
		f(set)
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func onTerminal(set map[string]any) { set["tty"] = true }

// call runs a command within the test's process: cheaper than a caller of its own.
func (p *testPod) call(settings string, stdin, stdout, stderr *os.File) int {
	p.t.Helper()
	fd, err := unix.Dup(int(memory(p.t, settings).Fd()))
	if err != nil {
		p.t.Error(err)
		return -1
	}
	s := Streams{Socket: p.socket, Stdin: stdin, Stdout: stdout, Stderr: stderr, Settings: fd}
	err = callRun(limited(p.t), s, []string{"app"})
	var exit *ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	if exit.Err != nil {
		p.t.Error(exit)
	}
	return exit.Code
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// startUntil starts a command and reads its output until the text ends with want.
func startUntil(t *testing.T, cmd *exec.Cmd, want string) string {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return readUntil(t, stdout, want)
}

// readUntil reads until the text ends with want.
func readUntil(t *testing.T, r io.Reader, want string) string {
	t.Helper()
	var text strings.Builder
	one := make([]byte, 1)
	for !strings.HasSuffix(text.String(), want) {
		n, err := r.Read(one)
		text.Write(one[:n])
		if err != nil {
			t.Fatalf("read %q, then %v, want %q", text.String(), err, want)
		}
	}
	return text.String()
}
