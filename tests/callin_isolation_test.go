package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// readOthers is a script that takes PIDs, and prints what it can read of those processes and whether
// a signal reaches them. By the kernel's rules, a process of the same user can see the numbers of
// another's descriptors, but not what they refer to.
const readOthers = `
for pid in $@; do
	cd /proc/$pid 2>/dev/null || { echo "no $pid"; continue; }
	for link in root cwd exe fd/0; do ls -d $link/ >/dev/null 2>&1 && echo "can $link of $pid"; readlink $link >/dev/null 2>&1 && echo "can link $link of $pid"; done
	for file in environ maps auxv; do [ -n "$(cat $file 2>/dev/null)" ] && echo "can $file of $pid"; done
	(exec 3<mem) 2>/dev/null && echo "can mem of $pid"
	kill -0 $pid && echo "signal $pid"
done
cd /; echo end; cat /proc/self/environ >/dev/null && echo "can itself"`

// A pod shares its PID namespace and not its data: no process in it can read the supervisor,
// another app, or a command that run has started. Signals are allowed.
func TestAppsCannotReadEachOther(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	up := b.SignalPipe(filepath.Join(dir, "up"))
	noCapabilities := suite.Shell("bare", "exec sleep 1000")
	noCapabilities.App.Isolators = []any{harness.Isolator("os/linux/capabilities-retain-set", map[string]any{"set": []string{"CAP_KILL"}})}
	tracer := suite.Shell("tracer", "exec sleep 1000")
	tracer.App.Isolators = []any{
		harness.Isolator("os/linux/capabilities-retain-set", map[string]any{"set": []string{"CAP_SYS_PTRACE", "CAP_KILL", "CAP_DAC_OVERRIDE"}}),
		harness.Isolator("os/linux/seccomp-retain-set", map[string]any{"set": []string{"@appc.io/all"}}),
	}
	p := b.Up("pod", harness.PodOf(suite.Shell("target", "echo $$ >/sync/up; exec sleep 1000"), suite.Shell("root", "exec sleep 1000"), noCapabilities, tracer).HostVolume("sync", dir, "/sync"))
	target := up.Line()
	cmd, write := settingsPipe(p, "target")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	feed(t, write, asRoot("echo $$ >/sync/up; exec sleep 1000"))
	sleeper := up.Line()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for _, tt := range []struct {
		app, user string
		signals   bool
	}{{"root", "0", true}, {"bare", "0", true}, {"tracer", "0", true}, {"root", "1000", false}} {
		s := settings{Exec: []string{"/bin/sh", "-c", readOthers, "sh", "1", target, sleeper}, User: tt.user, Group: tt.user}
		out, code := run(p, tt.app, s)
		if code != 0 || !strings.Contains(out, "end\ncan itself\n") || strings.Contains(strings.Split(out, "end\n")[0], "can ") || strings.Contains(out, "no ") {
			t.Errorf("%s as %s: exit status %d:\n%s", tt.app, tt.user, code, out)
		}
		if tt.signals && strings.Count(out, "signal ") != 3 {
			t.Errorf("%s as %s: signals do not pass:\n%s", tt.app, tt.user, out)
		}
	}
}

// The call-in status, executed as a daemon does, prints the host's PIDs and the fates of all
// isolators.
func TestStatusWorksAsTheDaemonCallsIt(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	app := suite.Shell("app", "exec sleep 1000")
	app.App.Isolators = []any{
		harness.Isolator("resource/memory", map[string]any{"limit": "64Mi"}),
		harness.Isolator("example.com/unknown", map[string]any{"x": 1}),
	}
	p := b.Up("pod", harness.PodOf(app, suite.Shell("ended", "exit 3"), suite.Shell("killed", "kill -KILL $$")))
	p.Exited("ended")
	p.Exited("killed")
	r := harness.Finish(t, p.CallIn("status"))
	var all map[string]map[string]any
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || r.Stderr != "" {
		t.Fatalf("%v: %q %q", err, r.Stdout, r.Stderr)
	}
	pid, _ := all["app"]["pid"].(float64)
	if pid == 0 || !strings.Contains(harness.Finish(t, p.InNetwork("cat", "/proc/"+strconv.Itoa(int(pid))+"/cmdline")).Stdout, "sleep") {
		t.Errorf("pid %v is not a process of the app on the host", all["app"]["pid"])
	}
	for name, want := range map[string][3]any{"ended": {true, 3.0, nil}, "killed": {true, 137.0, "killed"}} {
		s := all[name]
		if have := [3]any{s["exited"], s["exitCode"], s["exitReason"]}; have != want {
			t.Errorf("%s: %v, want %v", name, have, want)
		}
	}
	r = harness.Finish(t, p.CallIn("status", "--isolators", "app"))
	for _, word := range []string{"resource/memory", "enforced", "example.com/unknown", "ignored"} {
		if !strings.Contains(r.Stdout, word) {
			t.Errorf("status --isolators is without %q: %s%s", word, r.Stdout, r.Stderr)
		}
	}
	var none struct{ Pod, App json.RawMessage }
	r = harness.Finish(t, p.CallIn("status", "--isolators", "ended"))
	if err := json.Unmarshal([]byte(r.Stdout), &none); err != nil || string(none.Pod) != "[]" || string(none.App) != "[]" {
		t.Errorf("the fates of no isolators: %v, %q", err, r.Stdout)
	}
	if r := harness.Finish(t, p.CallIn("status", "--isolators", "nobody")); r.Code == 0 || !strings.HasPrefix(r.Stderr, "status: ") {
		t.Errorf("status of an unknown app: exit status %d, %q", r.Code, r.Stderr)
	}
}

// TestAppsCannotLimitInit: an app that could change init's limits could have the kernel kill it, and with it the pod.
func TestAppsCannotLimitInit(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	p := b.Up("pod", harness.PodOf(suite.Shell("a", "exec sleep 1000")).HostVolume("probe", dir, "/probe"))
	denied := "operation not permitted\n"
	if have := succeeds(p, "a", "/probe/probe limit-pid-1"); have != denied+denied+denied {
		t.Errorf("a command says %q", have)
	}
	p.Stop()
}

// TestInitIgnoresSignals: the kernel drops what apps send, and no signal has a handler that they could keep busy.
func TestInitIgnoresSignals(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("p", harness.PodOf(suite.Shell("a", "echo up; exec sleep 1000")))
	p.Sees("a", "up")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Init()))
	if err != nil {
		t.Fatal(err)
	}
	bit := func(s unix.Signal) uint64 { return 1 << (s - 1) }
	for name, want := range map[string]uint64{
		"SigIgn": ^(bit(unix.SIGCHLD) | bit(unix.SIGKILL) | bit(unix.SIGSTOP)), "SigCgt": 0, "SigBlk": bit(unix.SIGCHLD),
	} {
		if got := signalMask(t, status, name); got != want {
			t.Errorf("%s is %#x, want %#x", name, got, want)
		}
	}
	p.Stop()
}

// signalMask returns a mask in the text of /proc/PID/status.
func signalMask(t *testing.T, status []byte, name string) (mask uint64) {
	t.Helper()
	_, rest, _ := strings.Cut(string(status), "\n"+name+":\t")
	if _, err := fmt.Sscanf(rest, "%x", &mask); err != nil {
		t.Fatalf("%s: %v in\n%s", name, err, status)
	}
	return mask
}
