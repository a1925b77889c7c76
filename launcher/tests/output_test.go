package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// Each line that a command prints with --json is an object.
func TestEveryCommandPrintsOneObjectALine(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	path := b.Write("kept.json", harness.PodOf(suite.Shell("a", "echo out; exit 3")))
	b.Images = append(b.Images, filepath.Join(suite.Images, "busybox.aci"))
	check := func(args ...string) {
		t.Helper()
		r := b.Launcher(append([]string{"--json"}, args...)...)
		if r.Code != 0 && r.Code != 3 || r.Stdout == "" {
			t.Errorf("%s: %+v", strings.Join(args, " "), r)
		}
		for line := range strings.Lines(r.Stdout) {
			var object map[string]any
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				t.Errorf("%s: %v: %q", strings.Join(args, " "), err, line)
			}
		}
	}
	check(append([]string{"image", "import"}, b.Images...)...)
	check("run", path)
	check("run", "--detach", "--name", "alive", b.Write("alive.json", harness.PodOf(suite.Shell("b", "echo out; exec sleep 1000"))))
	b.Note()
	for _, args := range []string{
		"ps --all", "status kept", "status alive", "status --isolators alive", "logs kept", "logs --stager kept", "wait kept", "top alive", "stats alive", "events --stream=false",
		"inspect kept", "inspect " + suite.IDs["busybox"], "validate " + path, "image list", "trust list", "version",
		"image prune --dry-run --all", "gc --dry-run", "restart kept", "stop --all", "rm kept", "image rm " + suite.IDs["busybox"], "gc",
	} {
		words := strings.Fields(args)
		switch args {
		case "stop --all", "rm kept", "image prune --dry-run --all", "image rm " + suite.IDs["busybox"]: // they may print nothing
			if r := b.Launcher(append([]string{"--json"}, words...)...); r.Code != 0 || r.Stdout != "" && !strings.HasPrefix(r.Stdout, "{") {
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
	b := suite.NewMachine(t)
	if r := b.Launcher("run", b.Write("timed.json", harness.PodOf(suite.Shell("a", "exit 0")))); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	for args, head := range map[string]string{"ps --all": "CREATED (JST)", "image list --no-trunc": "IMPORTED (JST)", "events --stream=false": " JST  "} {
		cmd := b.Command(strings.Fields(args)...)
		cmd.Env = append(cmd.Env, "TZ=Asia/Tokyo")
		r := harness.Finish(t, cmd)
		if day := time.Now().In(tokyo).Format("2006-01-02 15:"); !strings.Contains(r.Stdout, head) || args != "image list --no-trunc" && !strings.Contains(r.Stdout, day) &&
			!strings.Contains(r.Stdout, time.Now().In(tokyo).Add(-time.Hour).Format("2006-01-02 15:")) {
			t.Errorf("%s: %s", args, r.Stdout)
		}
	}
}

// --exit-policy never keeps a pod in the foreground whose apps have ended, until SIGINT: then the exit status is 130.
func TestExitPolicyNeverKeepsAForegroundPod(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	cmd := b.Command("run", "--exit-policy", "never", b.Write("stays.json", harness.PodOf(suite.Shell("a", "exit 3"))))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a running pod whose app has ended", func() bool {
		out := b.Must("ps")
		return strings.Contains(out, " running ") && strings.Contains(out, " 0/1 ")
	})
	b.Note()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit status %d, want 130", code)
	}
}

// A pod of an image that was imported without a signature, and whose mount point gets an empty volume, is what was asked for: run
// prints nothing, and validate no warning. Of a pod manifest without the volume, validate reports the mount point.
func TestRunPrintsNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	const image = "kurma.io/stager/tests/busybox"
	var stderr bytes.Buffer
	cmd := b.Command("run", "--rm", image, "--", "-c", "exit 0")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v: %s", err, &stderr)
	}
	if out := b.Must("validate", image); strings.Contains(out, "warning") {
		t.Errorf("validate of the image: %s", out)
	}
	unfilled := suite.Shell("a", "")
	unfilled.App = nil
	if out := b.Must("validate", b.Write("unfilled.json", harness.PodOf(unfilled))); !strings.Contains(out, `no volume for mount point "data"`) {
		t.Errorf("validate of the manifest: %s", out)
	}
}

// The stager's warnings reach the person who has started the pod, in the foreground and in the background.
func TestWarningsReachThePersonWhoStartsAPod(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"nothing": 1}`))
	app := suite.Shell("a", "exit 0")
	app.App.Isolators = []any{harness.Isolator("example.com/unknown", map[string]any{})}
	path := b.Write("warned.json", harness.PodOf(app))
	const ignored = `app "a": isolator example.com/unknown is ignored`
	for _, start := range []struct {
		want string
		args []string
	}{
		{ignored, []string{"run", path}},
		{ignored, []string{"run", "--detach", "--exit-policy", "all", path}},
		{ignored, []string{"restart", "warned"}},
		{"unknown key, ignored: stagerConfig.nothing", []string{"run", "--interactive", suite.IDs["busybox"], "--", "-c", "exit 0"}},
	} {
		r := b.Launcher(start.args...)
		if r.Code != 0 || !strings.Contains(r.Stderr, start.want) {
			t.Errorf("%s: %+v, want %q", strings.Join(start.args, " "), r, start.want)
		}
		b.Note()
		b.Must("stop", "--all")
	}
}
