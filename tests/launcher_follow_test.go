package tests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
	b := newMachine(t)
	var want strings.Builder
	for i := range 50 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString("last")
	doc := podOf(shell("a", `i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; printf last; exit 4`))
	for i := range followedPods(t) {
		name := fmt.Sprintf("short%d", i)
		path := b.write(name+".json", doc)
		b.must("run", "--detach", "--exit-policy", "all", "--name", name, path)
		if r := b.launcher("logs", "--follow", name); r.code != 0 || r.stdout != want.String() || r.stderr != "" {
			t.Fatalf("pod %d: logs --follow: exit status %d, %d of %d bytes, which end in %q; stderr %q", i, r.code, len(r.stdout), want.Len(),
				r.stdout[max(0, len(r.stdout)-20):], r.stderr)
		}
		if r := b.launcher("status", "--json", name); r.code != 0 || !strings.Contains(r.stdout, `{"a":{`) || r.stderr != "" {
			t.Fatalf("pod %d: status right after the end: %+v", i, r)
		}
		if r := b.launcher("logs", name); r.code != 0 || r.stdout != want.String() {
			t.Fatalf("pod %d: logs right after the end: %+v", i, r)
		}
		b.must("rm", "--force", name)
	}
}

// What a pod that is not kept has written reaches its follower, also one that reads it only after the pod with its log is deleted.
func TestAFollowerOfARemovedPodGetsEveryByte(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	path := b.write("gone.json", podOf(shell("a", "trap 'printf \"last words\"; exit' TERM; echo first; while :; do sleep 0.05; done")))
	b.must("run", "--detach", "--rm", "--name", "gone", path)
	cmd := b.command("logs", "--follow", "gone")
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
	b.must("stop", "gone")
	if err := unix.Kill(follower, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rest, readErr := io.ReadAll(lines)
	if err := errors.Join(readErr, cmd.Wait()); err != nil || string(rest) != "last words" {
		t.Errorf("then %q, %v", rest, err)
	}
	if r := b.launcher("logs", "gone"); r.code != 1 || !strings.Contains(r.stderr, "no such pod") {
		t.Errorf("logs of the removed pod: %+v", r)
	}
}

// run shows the apps' output, ends with the first exit code that is not 0, and keeps the pod.
func TestForegroundShowsTheOutput(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	path := b.write("front.json", podOf(
		shell("a", "echo out of a; echo err of a >&2; exit 3"),
		shell("b", "printf 'out of b'"),
	))
	r := b.launcher("run", path)
	if r.code != 3 || r.stdout != "out of a\nout of b\n" && r.stdout != "out of b\nout of a\n" || r.stderr != "err of a\n" {
		t.Errorf("%+v", r)
	}
	if out := b.must("status", "--json", "front"); out != `{"a":{"exited":true,"exitCode":3},"b":{"exited":true,"exitCode":0}}`+"\n" {
		t.Errorf("status after the end: %s", out)
	}
	if out := b.must("ps"); strings.Contains(out, "front") {
		t.Errorf("ps shows an ended pod:\n%s", out)
	}
	if out := b.must("ps", "--all"); !strings.Contains(out, "front  exited (3)  -    0/2 ") {
		t.Errorf("ps --all:\n%s", out)
	}
	if r := b.launcher("exec", "front", "a", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, `pod "front" has ended; launcher logs shows what it has written`) {
		t.Errorf("exec in an ended pod: %+v", r)
	}
	if out := b.must("ps", "-q") + "|" + b.must("ps", "-aq"); len(out) != len("|")+36+len("\n") {
		t.Errorf("ps -q, and ps -aq: %q", out)
	}
	b.must("rm", "front")
	if r := b.launcher("run", "--rm", path); r.code != 3 {
		t.Errorf("run --rm: %+v", r)
	}
	if out := b.must("ps", "--all"); strings.Contains(out, "front") {
		t.Errorf("ps --all after run --rm:\n%s", out)
	}
}

// ps counts the apps that run, and status names the kernel's kill for memory.
func TestPsCountsRunningApps(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	hungry := shell("hungry", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`)
	hungry.App.Isolators = append(hungry.App.Isolators, isolator("resource/memory", map[string]string{"limit": "16Mi"}))
	p := b.up("two", podOf(hungry, shell("idle", "exec sleep 1000")))
	if code, reason := p.exited("hungry"); code != 137 || reason != "oom-killed" {
		t.Errorf("exit code %d, reason %q", code, reason)
	}
	if out := b.must("ps"); !strings.Contains(out, "two   running, oom-killed") || !strings.Contains(out, " 1/2 ") {
		t.Errorf("ps:\n%s", out)
	}
	p.must("stop", "two")
	if out := b.must("ps", "--all"); !strings.Contains(out, "two   exited (137), oom-killed  -    0/2 ") {
		t.Errorf("ps --all:\n%s", out)
	}
	b.must("rm", "two")
}

// A start that fails says what the app has written.
func TestAFailedStartShowsTheAppsLastLines(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	doc := podOf(shell("a", "exec sleep 1000"))
	doc.Apps[0].App.EventHandlers = append(doc.Apps[0].App.EventHandlers, handlerDoc{"pre-start", []string{"/bin/sh", "-c", "echo no database here >&2; exit 1"}})
	path := b.write("fails.json", doc)
	for _, detach := range []string{"--detach=true", "--detach=false"} {
		r := b.launcher("run", detach, path)
		if r.code != 1 || !strings.HasPrefix(r.stderr, "launcher: app \"a\" has written:\n  no database here\nlauncher: launch pod ") {
			t.Errorf("%s: %+v", detach, r)
		}
	}
}
