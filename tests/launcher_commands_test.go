package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/names"
)

// kill signals an app's main process, and wait prints the pod's exit code.
func TestKillAndWait(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	path := b.write("two.json", podOf(
		shell("a", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"),
		shell("b", "exec sleep 1000"),
	))
	p := b.adopt(b.must("run", "--json", "--detach", "--exit-policy", "all", path))
	p.sees("a", "up")
	p.must("kill", "--signal", "TERM", p.name, "a")
	if code, _ := p.exited("a"); code != 5 {
		t.Errorf("a ended with %d, want 5", code)
	}
	if p.status()["b"].Exited {
		t.Error("b was killed with a")
	}
	if r := p.launcher("kill", p.name, "a"); r.code != 1 || !strings.Contains(r.stderr, "nothing runs that could be sent SIGKILL") {
		t.Errorf("kill of an ended app: %+v", r)
	}
	p.must("kill", p.name)
	if out := p.must("wait", p.name); out != "5\n" {
		t.Errorf("wait: %q", out)
	}
	if out := p.must("wait", "--json", p.name); !strings.Contains(out, `"name":"two","code":5}`) {
		t.Errorf("wait --json: %q", out)
	}
	if r := p.launcher("kill", p.name); r.code != 1 || !strings.Contains(r.stderr, "has ended") {
		t.Errorf("kill of an ended pod: %+v", r)
	}
	if r := p.launcher("kill", "--signal", "NOISE", p.name); r.code != 2 {
		t.Errorf("kill with an unknown signal: %+v", r)
	}
}

// stop --time does not wait for the grace period, and --all stops all pods.
func TestStopKillsAfterItsTime(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"gracePeriod": "50s"}`))
	doc := podOf(shell("a", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
	for _, name := range []string{"one", "two"} {
		b.up(name, doc).sees("a", "up")
	}
	b.note()
	begin := time.Now()
	b.must("stop", "--all", "--time", "1")
	if took := time.Since(begin); took > 40*time.Second {
		t.Errorf("stop --time 1 took %s, as long as the grace period", took)
	}
	for _, p := range b.ps() {
		if p.State != "exited" || p.Exit == nil || p.Exit.Signal != "SIGKILL" {
			t.Errorf("%+v", p)
		}
	}
	if out := b.must("status", "--json", "one"); out != `{"a":{"exited":true}}`+"\n" {
		t.Errorf("status of an app that was killed with its stager: %s", out)
	}
}

// restart starts a pod again as it was started.
func TestRestartStartsAnotherPodLikeIt(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("sync", 0o777)
	p := b.up("again", podOf(shell("a", "echo run >>/sync/runs; exec sleep 1000")).hostVolume("sync", dir, "/sync"))
	fresh := b.adopt(b.must("restart", "--json", "again"))
	if fresh.uuid == p.uuid || fresh.name != "again" {
		t.Errorf("the new pod is %s %s", fresh.uuid, fresh.name)
	}
	eventually(t, "the second run", func() bool {
		runs, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return string(runs) == "run\nrun\n"
	})
	if out := b.must("ps", "--all"); strings.Count(out, "  again  ") != 2 || strings.Count(out, "running") != 1 {
		t.Errorf("ps --all:\n%s", out)
	}
}

// logs shows all apps in the order of time, up to a time, and the stager's own log.
func TestLogsOfAllApps(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("turns", 0o755)
	const await = "await() { until [ -e /turns/$1 ]; do sleep 0.02; done; }; "
	path := b.write("talk.json", podOf(
		shell("a", await+"echo one; await 3; echo three; await 5; printf last"),
		shell("b", await+"await 2; echo two >&2; await 4; echo four"),
	).hostVolume("turns", dir, "/turns"))
	p := b.adopt(b.must("run", "--json", "--detach", "--exit-policy", "all", path))
	follow := p.command("logs", "--follow", p.name)
	var stdout, stderr bytes.Buffer
	follow.Stdout, follow.Stderr = &stdout, &stderr
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	// A line's time is that of its logging: the next one is written when it is in the log.
	for i, line := range []struct{ app, text string }{{"a", "one"}, {"b", "two"}, {"a", "three"}, {"b", "four"}} {
		p.sees(line.app, line.text)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i+2)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := follow.Wait(); err != nil || stderr.String() != "two\n" || strings.Count(stdout.String(), "\n") != 4 {
		t.Errorf("logs --follow: %v: %q, %q", err, &stdout, &stderr)
	}
	if r := p.launcher("logs", p.name); r.code != 0 || r.stdout != "one\nthree\nfour\nlast\n" || r.stderr != "two\n" {
		t.Errorf("logs: %+v", r)
	}
	var lines []struct{ Time, App, Stream, Message string }
	for line := range strings.Lines(p.must("logs", "--json", p.name)) {
		var one struct{ Time, App, Stream, Message string }
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		lines = append(lines, one)
	}
	if len(lines) != 5 || lines[1].Message != "two" || lines[1].App != "b" || lines[1].Stream != "stderr" || lines[4].Message != "last" {
		t.Errorf("logs --json: %+v", lines)
	}
	if r := p.launcher("logs", "--until", lines[2].Time, p.name); r.stdout != "one\n" || r.stderr != "two\n" {
		t.Errorf("logs --until: %+v", r)
	}
	if r := p.launcher("logs", "--until", lines[4].Time, p.name, "a"); r.stdout != "one\nthree\n" {
		t.Errorf("logs --until of an app: %+v", r)
	}
	if out := p.must("logs", "--stager", "--follow", p.name); out != p.stagerLog() || !strings.Contains(out, "app ended") {
		t.Errorf("logs --stager: %q", out)
	}
}

// inspect shows a pod or an image; gc --dry-run deletes nothing.
func TestInspectAndDryRun(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	p := b.up("seen", podOf(shell("a", "exec sleep 1000")))
	var pod struct {
		UUID, State string
		Plan        struct{ Layers []any }
		Manifest    struct{ Name string }
		Status      map[string]appStatus
	}
	if err := json.Unmarshal([]byte(b.must("inspect", "seen")), &pod); err != nil {
		t.Fatal(err)
	}
	if pod.UUID != p.uuid || pod.State != "running" || len(pod.Plan.Layers) == 0 || pod.Manifest.Name != "seen" || pod.Status["a"].PID == 0 {
		t.Errorf("%+v", pod)
	}
	if out := b.must("inspect", "--json", "kurma.io/stager/tests/busybox"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"acKind":"ImageManifest"`) && !strings.Contains(out, `"acKind": "ImageManifest"`) {
		t.Errorf("inspect of an image: %s", out)
	}
	if r := b.launcher("inspect", "nothing"); r.code != 1 || !strings.Contains(r.stderr, `no such pod or image: "nothing"`) {
		t.Errorf("%+v", r)
	}
	if out := b.must("gc", "--dry-run"); out != "" {
		t.Errorf("gc --dry-run with a live pod: %q", out)
	}
	b.must("stop", "seen")
	for range 2 {
		if out := b.must("gc", "--dry-run"); out != "pod "+p.uuid+"\n" {
			t.Errorf("gc --dry-run: %q", out)
		}
	}
	if out := b.must("gc"); out != "pod "+p.uuid+"\n" {
		t.Errorf("gc: %q", out)
	}
}

// An exported image can be imported; of a signed one every byte is the same.
func TestExportedImages(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("out", 0o755)
	stager := filepath.Join(dir, "stager.aci")
	b.must("image", "export", names.Image, stager)
	for suffix, from := range map[string]string{"": os.Getenv("STAGER_ACI"), ".asc": os.Getenv("STAGER_ACI") + ".asc"} {
		have, err := os.ReadFile(stager + suffix)
		want, wantErr := os.ReadFile(from)
		if err != nil || wantErr != nil || !bytes.Equal(have, want) {
			t.Errorf("stager.aci%s differs from what was imported: %v, %v", suffix, err, wantErr)
		}
	}
	busybox := filepath.Join(dir, "busybox.aci")
	if r := b.launcher("image", "export", "kurma.io/stager/tests/busybox", busybox); r.code != 0 {
		t.Errorf("%+v", r)
	}
	b.must("image", "import", busybox)
	b.layersAreNow()
	if r := b.launcher("run", "--rm", "kurma.io/stager/tests/busybox", "--", "-c", "echo it works"); r.code != 0 || r.stdout != "it works\n" {
		t.Errorf("a pod of the exported image: %+v", r)
	}
	if r := b.launcher("image", "export", "kurma.io/stager/tests/busybox", busybox); r.code != 1 || !strings.Contains(r.stderr, "file exists") {
		t.Errorf("an export over a file: %+v", r)
	}
}

// validate says what would be refused, changed or ignored, and starts nothing.
func TestValidate(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	limited := shell("a", "exit 0")
	limited.App.Isolators = []any{
		isolator("resource/memory", map[string]string{"limit": "16Mi"}),
		isolator("os/linux/capabilities-retain-set", map[string][]string{"set": {"CAP_CHOWN", "CAP_FLY"}}),
		isolator("example.com/unknown", true),
	}
	out := b.must("validate", b.write("limited.json", podOf(limited)))
	for _, want := range []string{
		"app \"a\": isolator os/linux/capabilities-retain-set is modified: ", "app \"a\": isolator example.com/unknown is ignored: ",
		"pod \"limited\" with 1 app can be started\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	twice := shell("a", "exit 0")
	twice.App.Isolators = []any{
		isolator("os/linux/capabilities-retain-set", map[string][]string{"set": {"CAP_CHOWN"}}),
		isolator("os/linux/capabilities-remove-set", map[string][]string{"set": {"CAP_KILL"}}),
	}
	path := b.write("twice.json", podOf(twice))
	if r := b.launcher("validate", path); r.code != 1 || !strings.Contains(r.stderr, "must not be used together") {
		t.Errorf("%+v", r)
	}
	if all := b.ps(); len(all) != 0 {
		t.Errorf("validate has left %+v", all)
	}
	// The stager refuses the same.
	b.refuse("twice", podOf(twice), "must not be used together")
}
