package tests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// followedPods is how many pods TestFollowersOfShortPodsGetEveryByte follows: PODS, or 20.
func followedPods(t *testing.T) int {
	text := os.Getenv("PODS")
	if text == "" {
		return 20
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("PODS: %v", err)
	}
	return n
}

// A follower gets every byte to the last, whether it or the pod ends first, and a pod has a
// status and logs at any time.
func TestFollowersOfShortPodsGetEveryByte(t *testing.T) {
	b := suite.NewMachine(t)
	var want strings.Builder
	for i := range 50 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString("last")
	doc := harness.PodOf(suite.Shell("a", `i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; printf last; exit 4`))
	for i := range followedPods(t) {
		name := fmt.Sprintf("short%d", i)
		path := b.Write(name+".json", doc)
		b.Must("run", "--detach", "--exit-policy", "all", "--name", name, path)
		if r := b.Launcher("logs", "--follow", name); r.Code != 0 || r.Stdout != want.String() || r.Stderr != "" {
			t.Fatalf("pod %d: logs --follow: exit status %d, %d of %d bytes, which end in %q; stderr %q", i, r.Code, len(r.Stdout), want.Len(),
				r.Stdout[max(0, len(r.Stdout)-20):], r.Stderr)
		}
		if r := b.Launcher("status", "--json", name); r.Code != 0 || !strings.Contains(r.Stdout, `{"a":{`) || r.Stderr != "" {
			t.Fatalf("pod %d: status right after the end: %+v", i, r)
		}
		if r := b.Launcher("logs", name); r.Code != 0 || r.Stdout != want.String() {
			t.Fatalf("pod %d: logs right after the end: %+v", i, r)
		}
		b.Must("rm", "--force", name)
	}
}

// What a pod that is not kept has written reaches its follower, also one that reads it only after the pod with its log is deleted.
func TestAFollowerOfARemovedPodGetsEveryByte(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	path := b.Write("gone.json", harness.PodOf(suite.Shell("a", "trap 'printf \"last words\"; exit' TERM; echo first; while :; do sleep 0.05; done")))
	b.Must("run", "--detach", "--rm", "--name", "gone", path)
	cmd := b.Command("logs", "--follow", "gone")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	follower := cmd.Process.Pid
	if err := unix.Kill(follower, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, follower, nil, unix.WSTOPPED, nil); err != nil {
		t.Fatal(err)
	}
	b.Must("stop", "gone")
	if err := unix.Kill(follower, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rest, readErr := io.ReadAll(lines)
	if err := errors.Join(readErr, cmd.Wait()); err != nil || string(rest) != "last words" {
		t.Errorf("then %q, %v", rest, err)
	}
	if r := b.Launcher("logs", "gone"); r.Code != 1 || !strings.Contains(r.Stderr, "no such pod") {
		t.Errorf("logs of the removed pod: %+v", r)
	}
}

// run shows the apps' output, ends with the first exit code that is not 0, and keeps the pod.
func TestForegroundShowsTheOutput(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	path := b.Write("front.json", harness.PodOf(
		suite.Shell("a", "echo out of a; echo err of a >&2; exit 3"),
		suite.Shell("b", "printf 'out of b'"),
	))
	r := b.Launcher("run", path)
	if r.Code != 3 || r.Stdout != "a | out of a\nb | out of b\n" && r.Stdout != "b | out of b\na | out of a\n" || r.Stderr != "a | err of a\n" {
		t.Errorf("%+v", r)
	}
	if out := b.Must("status", "--json", "front"); out != `{"a":{"exited":true,"exitCode":3},"b":{"exited":true,"exitCode":0}}`+"\n" {
		t.Errorf("status after the end: %s", out)
	}
	if out := b.Must("ps"); strings.Contains(out, "front") {
		t.Errorf("ps shows an ended pod:\n%s", out)
	}
	if out := b.Must("ps", "--all"); !strings.Contains(out, "front  exited (3)  -    0/2 ") {
		t.Errorf("ps --all:\n%s", out)
	}
	if r := b.Launcher("exec", "front", "a", "--", "true"); r.Code != 125 || !strings.Contains(r.Stderr, `pod "front" has ended`) {
		t.Errorf("exec in an ended pod: %+v", r)
	}
	if out := b.Must("ps", "-q") + "|" + b.Must("ps", "-aq"); len(out) != len("|")+36+len("\n") {
		t.Errorf("ps -q, and ps -aq: %q", out)
	}
	b.Must("rm", "front")
	if r := b.Launcher("run", "--rm", path); r.Code != 3 {
		t.Errorf("run --rm: %+v", r)
	}
	if out := b.Must("ps", "--all"); strings.Contains(out, "front") {
		t.Errorf("ps --all after run --rm:\n%s", out)
	}
}

// run ends as a shell does if the app's program cannot be executed, detached, too.
func TestRunOfAProgramThatCannotBeExecuted(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	for program, want := range map[string]int{"nosuch": 127, "/etc": 126} {
		for _, detach := range []string{"--detach=true", "--detach=false"} {
			r := b.Launcher("run", detach, "--exec", program, "kurma.io/stager/tests/busybox")
			if r.Code != want || !strings.Contains(r.Stderr, "exec "+program+": ") {
				t.Errorf("%s %s: %+v, want exit status %d", detach, program, r, want)
			}
		}
	}
}

// An app that the kernel kills before its program begins has a memory limit that is too low: often the unit is missing.
func TestAMemoryLimitBelowAStartIsNamed(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	r := b.Launcher("run", "--memory", "512", "kurma.io/stager/tests/busybox", "--", "-c", "true")
	if r.Code != 1 || !strings.Contains(r.Stderr, "was killed") || !strings.Contains(r.Stderr, "its memory limit is 512 bytes") {
		t.Errorf("%+v", r)
	}
}

// The words after -- are the command of an OCI image without an entry point, also those of a program that the image lacks.
func TestRunOfACommandThatAnOCIImageLacks(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	dir := t.TempDir()
	layout, bundle := filepath.Join(dir, "layout"), filepath.Join(dir, "bundle")
	image, bin := layout+":1", bundle+"/rootfs/bin"
	harness.RunAll(t, []string{"umoci", "init", "--layout", layout}, []string{"umoci", "new", "--image", image},
		[]string{"umoci", "unpack", "--image", image, bundle}, []string{"mkdir", bin}, []string{"cp", "/bin/busybox", bin + "/sh"},
		[]string{"umoci", "repack", "--image", image, bundle},
		[]string{"umoci", "config", "--image", image, "--config.cmd", "sh", "--config.env", "PATH=/bin"})
	id := strings.TrimSpace(b.Must("image", "import", "file://"+layout))
	b.LayersAreNow()
	for program, want := range map[string]int{"nosuch": 127, "/bin": 126} {
		for _, detach := range []string{"--detach=true", "--detach=false"} {
			r := b.Launcher("run", detach, id, "--", program, "word")
			if r.Code != want || !strings.Contains(r.Stderr, "exec "+program+": ") {
				t.Errorf("%s %s: %+v, want exit status %d", detach, program, r, want)
			}
		}
	}
	if r := b.Launcher("run", id, "--", "sh", "-c", "exit 5"); r.Code != 5 || r.Stderr != "" {
		t.Errorf("a command of the image: %+v", r)
	}
}

// ps counts the apps that run, and status names the kernel's kill for memory.
func TestPsCountsRunningApps(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	hungry := suite.Shell("hungry", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`)
	hungry.App.Isolators = append(hungry.App.Isolators, harness.Isolator("resource/memory", map[string]string{"limit": "16Mi"}))
	p := b.Up("two", harness.PodOf(hungry, suite.Shell("idle", "exec sleep 1000")))
	if code, reason := p.Exited("hungry"); code != 137 || reason != "oom-killed" {
		t.Errorf("exit code %d, reason %q", code, reason)
	}
	if out := b.Must("ps"); !strings.Contains(out, "two   running, out of memory") || !strings.Contains(out, " 1/2 ") {
		t.Errorf("ps:\n%s", out)
	}
	p.Must("stop", "two")
	if out := b.Must("ps", "--all"); !strings.Contains(out, "two   exited (137), out of memory  -    0/2 ") {
		t.Errorf("ps --all:\n%s", out)
	}
	b.Must("rm", "two")
}

// A start that fails says what the app has written.
func TestAFailedStartShowsTheAppsLastLines(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	doc := harness.PodOf(suite.Shell("a", "exec sleep 1000"))
	doc.Apps[0].App.EventHandlers = append(doc.Apps[0].App.EventHandlers, harness.HandlerDoc{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "echo no database here >&2; exit 1"}})
	path := b.Write("fails.json", doc)
	for _, detach := range []string{"--detach=true", "--detach=false"} {
		r := b.Launcher("run", detach, path)
		if r.Code != 1 || !strings.HasPrefix(r.Stderr, "launcher: last output of app \"a\":\n  no database here\nlauncher: launch pod ") {
			t.Errorf("%s: %+v", detach, r)
		}
	}
}
