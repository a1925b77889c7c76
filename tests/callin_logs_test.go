package tests

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

func TestLogsWorkAsTheDaemonCallsThem(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	p := b.up("pod", podOf(shell("app", `for i in 1 2 3; do echo out$i; echo err$i >&2; usleep 1000; done; printf 'a\0b\377partial'`)))
	if code, _ := p.exited("app"); code != 0 {
		t.Fatalf("the app's exit code is %d", code)
	}
	for _, tt := range []struct {
		name           string
		args           []string
		stdout, stderr string
	}{
		{"all", nil, "out1\nout2\nout3\na\x00b\xffpartial", "err1\nerr2\nerr3\n"},
		{"stdout", []string{"--stream", "stdout"}, "out1\nout2\nout3\na\x00b\xffpartial", ""},
		{"stderr", []string{"--stream", "stderr"}, "", "err1\nerr2\nerr3\n"},
		{"last", []string{"--tail", "2", "--stream", "stdout"}, "out3\na\x00b\xffpartial", ""},
		{"none", []string{"--tail", "0"}, "", ""},
		{"since long ago", []string{"--since", "1h", "--stream", "stderr"}, "", "err1\nerr2\nerr3\n"},
		{"since later", []string{"--since", "2999-01-02T03:04:05Z"}, "", ""},
		{"of an ended app, followed", []string{"--follow", "--stream", "stderr"}, "", "err1\nerr2\nerr3\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := finish(t, p.callIn(append(append([]string{"logs"}, tt.args...), "app")...))
			if r.stdout != tt.stdout || r.stderr != tt.stderr || r.code != 0 {
				t.Errorf("exit status %d, %q and %q", r.code, r.stdout, r.stderr)
			}
		})
	}
	r := finish(t, p.callIn("logs", "--timestamps", "--stream", "stderr", "app"))
	if !regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z err\d\n){3}$`).MatchString(r.stdout + r.stderr) {
		t.Errorf("with times: %q %q", r.stdout, r.stderr)
	}
	for _, args := range [][]string{{"nobody"}, {"../app"}, {}, {"--tail", "x", "app"}, {"--stream", "x", "app"}} {
		r := finish(t, p.callIn(append([]string{"logs"}, args...)...))
		if r.code == 0 || r.stdout != "" || !strings.HasPrefix(r.stderr, "logs: ") {
			t.Errorf("logs %q: exit status %d, %q, %q", args, r.code, r.stdout, r.stderr)
		}
	}
}

// A follower sees every line, in order, across rotations, and ends with the app.
func TestLogsAreFollowedAcrossRotation(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"log": {"maxSize": "64Ki", "maxFiles": 4}}`))
	dir := b.folder("sync", 0o777)
	release := b.signalPipe(filepath.Join(dir, "go"))
	app := shell("app", "echo 0; read go </sync/go; i=1; while [ $i -le 60 ]; do seq $((i*100-99)) $((i*100)); i=$((i+1)); usleep 5000; done")
	p := b.up("pod", podOf(app).hostVolume("sync", dir, "/sync"))
	p.sees("app", "0\n")
	cmd := p.command("logs", "--follow", p.name, "app")
	done := make(chan result, 1)
	go func() { done <- finish(t, cmd) }()
	if _, err := release.file.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	r := <-done
	var want strings.Builder
	for i := range 6001 {
		fmt.Fprintln(&want, i)
	}
	if r.code != 0 || r.stdout != want.String() {
		t.Errorf("exit status %d, %d bytes of %d, %s", r.code, len(r.stdout), want.Len(), r.stderr)
	}
	files, err := filepath.Glob(p.root(suite.stager.LogDir + "/app/*.log"))
	if err != nil || len(files) < 2 || len(files) > 4 {
		t.Errorf("log files %q, %v", files, err)
	}
}

// logs needs no supervisor: it works with a supervisor that is stopped, and with none as
// long as the stager's mount namespace is there. A follower ends with the pod.
func TestLogsNeedNoSupervisor(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	p := b.up("pod", podOf(shell("app", "echo words; exec sleep 1000")))
	p.sees("app", "words\n")
	supervisor, monitor := p.supervisor(), parentOf(t, p.stager)
	mustSignal(t, supervisor, unix.SIGSTOP)
	if text := p.logs("app"); text != "words\n" {
		t.Errorf("of a stopped supervisor: %q", text)
	}
	// The monitor would stop the pod.
	mustSignal(t, monitor, unix.SIGSTOP)
	defer mustSignal(t, monitor, unix.SIGCONT)
	logs, out := p.command("logs", "--follow", p.name, "app"), p.heldMounts()
	defer out.Close()
	shown, err := logs.StdoutPipe()
	if err == nil {
		err = logs.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Process.Kill()
	words := make([]byte, len("words\n"))
	if _, err := io.ReadFull(shown, words); err != nil {
		t.Fatal(err)
	}
	mustSignal(t, supervisor, unix.SIGKILL)
	if rest, err := io.ReadAll(shown); err != nil || len(rest) > 0 {
		t.Errorf("after the end the follower shows %q, %v", rest, err)
	}
	if err := logs.Wait(); err != nil {
		t.Errorf("the follower ended with %v", err)
	}
	if r := finish(t, inMounts(out, "logs", "app")); r.stdout != "words\n" || r.code != 0 {
		t.Errorf("logs of a dead pod: exit status %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	for _, call := range []string{"status", "attach"} {
		args := []string{call, "app"}
		if call == "status" {
			args = args[:1]
		}
		r := finish(t, inMounts(out, args...))
		if r.code == 0 || !strings.HasPrefix(r.stderr, call+": ") || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s of a dead pod: exit status %d, %q, %q", call, r.code, r.stdout, r.stderr)
		}
	}
}

// heldMounts returns an open file of the stager's mount namespace, which keeps the namespace after
// the stager's end.
func (p *pod) heldMounts() *os.File {
	p.t.Helper()
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.stager))
	if err != nil {
		p.t.Fatal(err)
	}
	return mounts
}

// inMounts returns a call-in that runs in a mount namespace.
func inMounts(mounts *os.File, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--mount=/proc/self/fd/3", names.CallInDir + "/" + args[0]}, args[1:]...)...)
	cmd.Env = []string{"HOME=/root"}
	cmd.ExtraFiles = []*os.File{mounts}
	return cmd
}

func mustSignal(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	parent, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return parent
}
