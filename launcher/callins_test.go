package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// newPod makes a host with one running pod, p.
func newPod(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	h.run("run", "--detach", "--name", "p", "example.com/one")
	t.Cleanup(func() { h.run("rm", "--force", "p") })
	return h
}

func TestStatusPrintsATableOrJSON(t *testing.T) {
	h := newPod(t)
	if out := h.run("status", "--json", "p"); out != "{\"one\":{\"pid\":1,\"exited\":false}}\n" {
		t.Errorf("status --json: %q", out)
	}
	if out := h.run("status", "p"); !strings.Contains(out, "one  running  1") {
		t.Errorf("status: %q", out)
	}
	if out := h.run("status", h.ps()[0].UUID[:8]); !strings.Contains(out, "running") {
		t.Errorf("status by UUID: %q", out)
	}
}

// A stager that does not answer hides what the launcher knows of its pod neither from ps nor from inspect.
func TestAStagerThatDoesNotAnswerIsInspected(t *testing.T) {
	h := newPod(t)
	// A FIFO that nobody writes to.
	if err := unix.Mkfifo(filepath.Join(h.dir, "pods", h.ps()[0].UUID, "root/status"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"ps --json", "inspect --json p"} {
		cmd := h.command(strings.Fields(args)...)
		late := time.AfterFunc(surroundings.Patience, func() { _ = cmd.Process.Kill() })
		if r := h.finish(cmd); r.code != 0 || !strings.Contains(r.stdout, `"state":"running"`) {
			t.Errorf("%s: %+v", args, r)
		}
		late.Stop()
	}
}

func TestCallInsReceiveTheirArguments(t *testing.T) {
	h := newPod(t)
	tests := []struct{ name, want string }{
		{"logs p", "logs one\n"},
		{"logs p one", "logs one\n"},
		{"logs --follow --timestamps --tail 5 --since 2026-11-21T03:00:00.5Z --stream stderr p", "logs --follow --timestamps --tail 5 --since 2026-11-21T03:00:00.5Z --stream stderr one\n"},
		{"attach p", "attach one\n"},
		{"status --isolators p", "[\n  \"--isolators\",\n  \"one\"\n]\n"},
		{"status --json --isolators p one", "[\"--isolators\",\"one\"]\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if out := h.run(strings.Fields(tt.name)...); out != tt.want {
				t.Errorf("%q, want %q", out, tt.want)
			}
		})
	}
}

func TestLogsArePrintedAsJSON(t *testing.T) {
	h := newPod(t)
	lines := filepath.Join(h.dir, "pods", h.ps()[0].UUID, "root/lines")
	if err := os.WriteFile(lines, []byte("2026-11-21T03:00:01.5Z a \"line\"\n2026-11-21T03:00:02Z \n2026-11-21T03:00:03Z not \xff ended"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := h.try("logs", "--json", "--tail", "9", "p")
	want := `{"time":"2026-11-21T03:00:01.5Z","stream":"stdout","app":"one","message":"a \"line\""}
{"time":"2026-11-21T03:00:02Z","stream":"stdout","app":"one","message":""}
{"time":"2026-11-21T03:00:03Z","stream":"stdout","app":"one","message":"not \ufffd ended"}
`
	if r.code != 0 || r.stdout != want || r.stderr != "logs --timestamps --tail 9 one\n" {
		t.Errorf("%+v, want %s", r, want)
	}
}

func TestExecPassesItsSettings(t *testing.T) {
	h := newPod(t)
	want := `{"exec":["settings","-- x"],"user":"7","group":"8","workingDirectory":"/w"}
[HOME=/root STAGER_RUN_NAME=launcher: exec]
`
	if out := h.run("exec", "p", "--", "settings", "-- x"); out != want {
		t.Errorf("%s, want %s", out, want)
	}
	t.Setenv("TERM", "dumb")
	want = `{"exec":["settings"],"user":"7","group":"8","workingDirectory":"/w","tty":true}
[HOME=/root STAGER_RUN_NAME=launcher: exec TERM=dumb]
`
	if out := h.run("exec", "--tty", "p", "one", "--", "settings"); out != want {
		t.Errorf("%s, want %s", out, want)
	}
}

func TestExecPassesSettingsLargerThanAPipe(t *testing.T) {
	h := newPod(t)
	long := strings.Repeat("x", 120<<10)
	if out := h.run("exec", "p", "--", "settings", long); !strings.Contains(out, long) {
		t.Errorf("%d bytes came back", len(out))
	}
}

func TestExecReturnsTheExitStatus(t *testing.T) {
	h := newPod(t)
	for _, code := range []int{0, 1, 42, 125, 126, 127, 255} {
		if r := h.try("exec", "p", "--", "exit", fmt.Sprint(code)); r.code != code || r.stderr != "" {
			t.Errorf("exit %d: %+v", code, r)
		}
	}
}

func TestExecPassesStdio(t *testing.T) {
	h := newPod(t)
	text := strings.Repeat("0123456789abcde\n", 1<<16)
	for _, test := range []struct{ option, want string }{{"--interactive", text}, {"--interactive=false", ""}} {
		cmd := h.command("exec", test.option, "p", "--", "cat")
		cmd.Stdin = strings.NewReader(text)
		if r := h.finish(cmd); r.code != 0 || r.stdout != test.want {
			t.Errorf("%s: exit status %d, %d of %d bytes", test.option, r.code, len(r.stdout), len(test.want))
		}
	}
}

func TestExecForwardsSignals(t *testing.T) {
	h := newPod(t)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			cmd := h.command("exec", "p", "--", "signal")
			out := bufio.NewReader(must(cmd.StdoutPipe()))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := out.ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(out)
			if err := cmd.Wait(); err != nil || string(rest) != sig.String()+"\n" {
				t.Errorf("%q, %v", rest, err)
			}
		})
	}
}

func TestExecDiesWithItsCaller(t *testing.T) {
	h := newPod(t)
	cmd := h.command("exec", "p", "--", "signal")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	if _, err := read.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// The command holds the pipe open for as long as it lives.
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Error(err)
	}
}

func TestExecThatDoesNotReadItsSettingsIsKilled(t *testing.T) {
	h := newHost(t)
	pod := h.text("pod.json", `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"deaf","image":{"name":"example.com/one","id":"`+h.listed()["example.com/one"].ID+`"}}]}`)
	h.run("run", "--detach", "--name", "p", pod)
	t.Cleanup(func() { h.run("rm", "--force", "p") })
	for _, size := range []int{1, 100 << 10} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			t.Parallel()
			r := h.try("exec", "p", "--", strings.Repeat("x", size))
			if r.code != 125 || r.stderr != "launcher: exec: run has not read its settings within 10s and was killed\n" {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestCallInsRefuseWrongArguments(t *testing.T) {
	h := newPod(t)
	tests := []struct {
		args string
		code int
		want string
	}{
		{"exec p one", 2, "want POD [APP] -- CMD"},
		{"exec p --", 2, "want POD [APP] -- CMD"},
		{"exec -- true", 2, "want POD [APP] -- CMD"},
		{"exec p two -- true", 125, `has no app "two"; want one`},
		{"exec q -- true", 125, `no such pod: "q"`},
		{"logs p two", 1, `has no app "two"`},
		{"logs", 2, "want a POD"},
		{"status p one", 2, "want one POD"},
		{"status --isolators p two", 1, `has no app "two"`},
		{"attach q", 1, "no such pod"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			r := h.try(strings.Fields(tt.args)...)
			if r.code != tt.code || !strings.Contains(r.stderr, tt.want) || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestTerminalIsRestored runs a call-in that is killed after it made the
// terminal raw, with util-linux's script(1) for a terminal.
func TestTerminalIsRestored(t *testing.T) {
	h := newPod(t)
	launcher := strings.Join(h.command("exec", "-it", "p", "--", "raw").Args, " ")
	script := exec.Command("script", "--quiet", "--return", "--command",
		"stty -g; "+launcher+"; stty -g", "/dev/null")
	script.Env = append(os.Environ(), asLauncher+"=1")
	script.Stdin = must(os.Open(os.DevNull))
	out, err := script.Output()
	lines := strings.Fields(string(out))
	if err != nil || len(lines) < 2 || lines[0] != lines[len(lines)-1] || !strings.Contains(string(out), "raw") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTerminalOutputIsPassedOn has a terminal for the output only: what comes from the command's
// terminal is shown as it comes, and the state is as before afterwards.
func TestTerminalOutputIsPassedOn(t *testing.T) {
	h := newPod(t)
	launcher := strings.Join(h.command("exec", "--tty", "p", "--", "settings").Args, " ")
	script := exec.Command("script", "--quiet", "--return", "--command",
		"stty -g; "+launcher+" </dev/null; stty -g", "/dev/null")
	script.Env = append(os.Environ(), asLauncher+"=1")
	script.Stdin = must(os.Open(os.DevNull))
	out, err := script.Output()
	lines := strings.Split(string(out), "\n")
	if err != nil || len(lines) != 5 || lines[0] != lines[3] || !strings.HasSuffix(lines[0], "\r") {
		t.Fatalf("%v\n%q", err, out)
	}
	for _, line := range lines[1:3] { // the fake one has no terminal and writes LF alone
		if strings.HasSuffix(line, "\r") {
			t.Errorf("%q has a CR of this terminal", line)
		}
	}
}
