package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Each line that a command prints with --json is an object.
func TestEveryCommandPrintsOneObjectALine(t *testing.T) {
	t.Parallel()
	b := newMachine(t, ownStore())
	path := b.write("kept.json", podOf(shell("a", "echo out; exit 3")))
	b.images = append(b.images, filepath.Join(suite.images, "busybox.aci"))
	check := func(args ...string) {
		t.Helper()
		r := b.launcher(append([]string{"--json"}, args...)...)
		if r.code != 0 && r.code != 3 || r.stdout == "" {
			t.Errorf("%s: %+v", strings.Join(args, " "), r)
		}
		for line := range strings.Lines(r.stdout) {
			var object map[string]any
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				t.Errorf("%s: %v: %q", strings.Join(args, " "), err, line)
			}
		}
	}
	check(append([]string{"image", "import"}, b.images...)...)
	check("run", path)
	check("run", "--detach", "--name", "alive", b.write("alive.json", podOf(shell("b", "echo out; exec sleep 1000"))))
	b.note()
	for _, args := range []string{
		"ps --all", "status kept", "status alive", "status --isolators alive", "logs kept", "logs --stager kept", "wait kept", "top alive", "stats alive", "events --stream=false",
		"inspect kept", "inspect " + suite.ids["busybox"], "validate " + path, "image list", "trust list", "version",
		"image prune --dry-run --all", "gc --dry-run", "restart kept", "stop --all", "rm kept", "image rm " + suite.ids["busybox"], "gc",
	} {
		words := strings.Fields(args)
		switch args {
		case "stop --all", "rm kept", "image prune --dry-run --all", "image rm " + suite.ids["busybox"]: // they may print nothing
			if r := b.launcher(append([]string{"--json"}, words...)...); r.code != 0 || r.stdout != "" && !strings.HasPrefix(r.stdout, "{") {
				t.Errorf("%s: %+v", args, r)
			}
		default:
			check(words...)
		}
	}
}

// Times for a person are local, and their zone is named.
func TestTimesAreLocalAndLabelled(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	if r := b.launcher("run", b.write("timed.json", podOf(shell("a", "exit 0")))); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	for args, head := range map[string]string{"ps --all": "CREATED (JST)", "image list": "IMPORTED (JST)", "events --stream=false": " JST  "} {
		cmd := b.command(strings.Fields(args)...)
		cmd.Env = append(cmd.Env, "TZ=Asia/Tokyo")
		r := finish(t, cmd)
		if day := time.Now().In(tokyo).Format("2006-01-02 15:"); !strings.Contains(r.stdout, head) || args != "image list" && !strings.Contains(r.stdout, day) &&
			!strings.Contains(r.stdout, time.Now().In(tokyo).Add(-time.Hour).Format("2006-01-02 15:")) {
			t.Errorf("%s: %s", args, r.stdout)
		}
	}
}

// --exit-policy never keeps a pod in the foreground whose apps have ended, until SIGINT: then the exit status is 130.
func TestExitPolicyNeverKeepsAForegroundPod(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	cmd := b.command("run", "--exit-policy", "never", b.write("stays.json", podOf(shell("a", "exit 3"))))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a running pod whose app has ended", func() bool {
		out := b.must("ps")
		return strings.Contains(out, " running ") && strings.Contains(out, " 0/1 ")
	})
	b.note()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit status %d, want 130", code)
	}
}

// The stager's warnings reach the person who has started the pod, in the foreground and in the background.
func TestWarningsReachThePersonWhoStartsAPod(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	app := shell("a", "exit 0")
	app.App.Isolators = []any{isolator("example.com/unknown", map[string]any{})}
	path := b.write("warned.json", podOf(app))
	const ignored = `app "a": isolator example.com/unknown is ignored`
	for _, start := range []struct {
		want string
		args []string
	}{
		{ignored, []string{"run", path}},
		{ignored, []string{"run", "--detach", "--exit-policy", "all", path}},
		{ignored, []string{"restart", "warned"}},
		{`no volume for mount point "data"`, []string{"run", "--interactive", suite.ids["busybox"], "--", "-c", "exit 0"}},
	} {
		r := b.launcher(start.args...)
		if r.code != 0 || !strings.Contains(r.stderr, start.want) {
			t.Errorf("%s: %+v, want %q", strings.Join(start.args, " "), r, start.want)
		}
		b.note()
		b.must("stop", "--all")
	}
}
