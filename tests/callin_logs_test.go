package tests

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

func TestLogsWorkAsTheDaemonCallsThem(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("pod", harness.PodOf(suite.Shell("app", `for i in 1 2 3; do echo out$i; echo err$i >&2; usleep 1000; done; printf 'a\0b\377partial'`)))
	if code, _ := p.Exited("app"); code != 0 {
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
			r := harness.Finish(t, p.CallIn(append(append([]string{"logs"}, tt.args...), "app")...))
			if r.Stdout != tt.stdout || r.Stderr != tt.stderr || r.Code != 0 {
				t.Errorf("exit status %d, %q and %q", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
	r := harness.Finish(t, p.CallIn("logs", "--timestamps", "--stream", "stderr", "app"))
	if !regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z err\d\n){3}$`).MatchString(r.Stdout + r.Stderr) {
		t.Errorf("with times: %q %q", r.Stdout, r.Stderr)
	}
	for _, args := range [][]string{{"nobody"}, {"../app"}, {}, {"--tail", "x", "app"}, {"--stream", "x", "app"}} {
		r := harness.Finish(t, p.CallIn(append([]string{"logs"}, args...)...))
		if r.Code == 0 || r.Stdout != "" || !strings.HasPrefix(r.Stderr, "logs: ") {
			t.Errorf("logs %q: exit status %d, %q, %q", args, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// A follower sees every line, in order, across rotations, and ends with the app.
func TestLogsAreFollowedAcrossRotation(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"log": {"maxSize": "64Ki", "maxFiles": 4}}`))
	dir := b.Folder("sync", 0o777)
	release := b.SignalPipe(filepath.Join(dir, "go"))
	app := suite.Shell("app", "echo 0; read go </sync/go; i=1; while [ $i -le 60 ]; do seq $((i*100-99)) $((i*100)); i=$((i+1)); usleep 5000; done")
	p := b.Up("pod", harness.PodOf(app).HostVolume("sync", dir, "/sync"))
	p.Sees("app", "0\n")
	cmd := p.Command("logs", "--follow", p.Name, "app")
	done := make(chan harness.Result, 1)
	go func() { done <- harness.Finish(t, cmd) }()
	if _, err := release.File.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	r := <-done
	var want strings.Builder
	for i := range 6001 {
		fmt.Fprintln(&want, i)
	}
	if r.Code != 0 || r.Stdout != want.String() {
		t.Errorf("exit status %d, %d bytes of %d, %s", r.Code, len(r.Stdout), want.Len(), r.Stderr)
	}
	files, err := filepath.Glob(filepath.Join(p.Dir, "logs/app/*.log"))
	if err != nil || len(files) < 2 || len(files) > 4 {
		t.Errorf("log files %q, %v", files, err)
	}
}

// logs needs no supervisor: it works with a supervisor that is stopped, and with none as
// long as the stager's mount namespace is there. A follower ends with the pod.
func TestLogsNeedNoSupervisor(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("pod", harness.PodOf(suite.Shell("app", "echo words; exec sleep 1000")))
	p.Sees("app", "words\n")
	supervisor, monitor := p.Stager, harness.ParentOf(t, p.Stager)
	mustSignal(t, supervisor, unix.SIGSTOP)
	if text := p.Logs("app"); text != "words\n" {
		t.Errorf("of a stopped supervisor: %q", text)
	}
	// The monitor would stop the pod.
	mustSignal(t, monitor, unix.SIGSTOP)
	defer mustSignal(t, monitor, unix.SIGCONT)
	logs, out := p.Command("logs", "--follow", p.Name, "app"), heldMounts(p)
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
	if r := harness.Finish(t, inMounts(out, "logs", "app")); r.Stdout != "words\n" || r.Code != 0 {
		t.Errorf("logs of a dead pod: exit status %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	for _, call := range []string{"status", "attach"} {
		args := []string{call, "app"}
		if call == "status" {
			args = args[:1]
		}
		r := harness.Finish(t, inMounts(out, args...))
		if r.Code == 0 || !strings.HasPrefix(r.Stderr, call+": ") || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("%s of a dead pod: exit status %d, %q, %q", call, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// heldMounts returns an open file of the stager's mount namespace, which keeps the namespace after
// the stager's end.
func heldMounts(p *harness.Pod) *os.File {
	p.T.Helper()
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.Stager))
	if err != nil {
		p.T.Fatal(err)
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
