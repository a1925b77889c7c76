package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// kill signals an app's main process, and wait prints the pod's exit code.
func TestKillAndWait(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	path := b.Write("two.json", harness.PodOf(
		suite.Shell("a", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"),
		suite.Shell("b", "exec sleep 1000"),
	))
	p := b.Adopt(b.Must("run", "--json", "--detach", "--exit-policy", "all", path))
	p.Sees("a", "up")
	p.Must("kill", "--signal", "TERM", p.Name, "a")
	if code, _ := p.Exited("a"); code != 5 {
		t.Errorf("a ended with %d, want 5", code)
	}
	if p.Status()["b"].Exited {
		t.Error("b was killed with a")
	}
	if r := p.Launcher("kill", p.Name, "a"); r.Code != 1 || !strings.Contains(r.Stderr, "has no running process for SIGKILL") {
		t.Errorf("kill of an ended app: %+v", r)
	}
	p.Must("kill", p.Name)
	if out := p.Must("wait", p.Name); out != "5\n" {
		t.Errorf("wait: %q", out)
	}
	if out := p.Must("wait", "--json", p.Name); !strings.Contains(out, `"name":"two","code":5}`) {
		t.Errorf("wait --json: %q", out)
	}
	want := fmt.Sprintf("launcher: pod %q has ended\n", p.Name)
	if r := p.Launcher("kill", p.Name); r.Code != 1 || r.Stderr != want {
		t.Errorf("kill of an ended pod: %+v", r)
	}
	if r := p.Launcher("kill", "--signal", "NOISE", p.Name); r.Code != 2 {
		t.Errorf("kill with an unknown signal: %+v", r)
	}
}

// stop --time does not wait for the grace period, and --all stops all pods.
func TestStopKillsAfterItsTime(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "50s"}`))
	doc := harness.PodOf(suite.Shell("a", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
	for _, name := range []string{"one", "two"} {
		b.Up(name, doc).Sees("a", "up")
	}
	b.Note()
	begin := time.Now()
	b.Must("stop", "--all", "--time", "1")
	if took := time.Since(begin); took > 40*time.Second {
		t.Errorf("stop --time 1 took %s, as long as the grace period", took)
	}
	for _, p := range b.PS() {
		if p.State != "exited" || p.Exit == nil || p.Exit.Signal != "SIGKILL" {
			t.Errorf("%+v", p)
		}
	}
	if out := b.Must("status", "--json", "one"); out != `{"a":{"exited":true}}`+"\n" {
		t.Errorf("status of an app that was killed with its stager: %s", out)
	}
}

// restart starts a pod again as it was started. The new pod takes the old one's place, whether the old one was alive or had ended.
func TestRestartStartsAnotherPodLikeIt(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	p := b.Up("again", harness.PodOf(suite.Shell("a", "echo run >>/sync/runs; exec sleep 1000")).HostVolume("sync", dir, "/sync"))
	runs := func(want string) func() bool {
		return func() bool { text, _ := os.ReadFile(filepath.Join(dir, "runs")); return string(text) == want }
	}
	// The pod is up once the shell is executed, which may be before the shell writes.
	harness.Eventually(t, "the first run", runs("run\n"))
	fresh := b.Adopt(b.Must("restart", "--json", "again"))
	if fresh.UUID == p.UUID || fresh.Name != "again" {
		t.Errorf("the new pod is %s %s", fresh.UUID, fresh.Name)
	}
	harness.Eventually(t, "the second run", runs("run\nrun\n"))
	b.Must("stop", "again")
	last := b.Adopt(b.Must("restart", "--json", "again"))
	if all := b.PS(); len(all) != 1 || all[0].UUID != last.UUID || all[0].State != "running" {
		t.Errorf("ps --all: %+v, want the pod %s alone", all, last.UUID)
	}
}

// A restart keeps the apps' logs, of a pod that runs, that has ended and that was killed with its monitor.
func TestRestartKeepsLogs(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	doc := harness.PodOf(suite.Shell("a", "date +%s%N >>/data/runs; echo run $(wc -l </data/runs); exec sleep 1000")).HostVolume("data", "", "/data")
	doc.Volumes[0].Kind = "empty"
	want := "run 1\n"
	b.Up("kept", doc).Sees("a", want)
	for n, end := range []func(){
		func() {},
		func() { b.Must("stop", "kept") },
		func() {
			if err := syscall.Kill(b.Monitor(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
	} {
		end()
		p := b.Adopt(b.Must("restart", "--json", "kept"))
		want = fmt.Sprintf("%srun %d\n", want, n+2)
		p.Sees("a", want)
		if all := b.PS(); len(all) != 1 {
			t.Errorf("ps --all: %+v", all)
		}
	}
}

// The limits of the group in which a pod was started are also those of its restart.
func TestRestartKeepsTheParentOfAPodsCgroup(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	file := b.Write("pod.json", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	parent := b.Cgroup + "/tenant"
	b.Adopt(b.Must("run", "--json", "--detach", "--name", "p", "--cgroup-parent", parent, file))
	p := b.Adopt(b.Must("restart", "--json", "p"))
	one, _ := filepath.Glob("/sys/fs/cgroup/" + parent + "/" + p.UUID)
	each, _ := filepath.Glob("/sys/fs/cgroup/*/" + parent + "/" + p.UUID)
	if len(one)+len(each) == 0 {
		t.Error("the new pod is not in its parent's group")
	}
}

// A line without an end is older than what the app writes to its other stream meanwhile.
func TestLogsUntilATimeHaveUnfinishedLines(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("asks", harness.PodOf(suite.Shell("a", "printf 'password: ' >&2; sleep 0.1; echo later; exec sleep 1000")))
	p.Sees("a", "later")
	var later string
	for line := range strings.Lines(p.Must("logs", "--json", p.Name)) {
		var one struct{ Time, Message string }
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		if one.Message == "later" {
			later = one.Time
		}
	}
	if r := p.Launcher("logs", "--until", later, p.Name); r.Stdout != "" || r.Stderr != "password: " {
		t.Errorf("%+v", r)
	}
}

// A restart keeps the volumes also of a pod that is to be deleted at its end.
func TestRestartKeepsTheVolumesOfAPodThatIsRemoved(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	doc := harness.PodOf(suite.Shell("a", "ls /data; touch /data/file; exec sleep 1000")).HostVolume("data", "", "/data")
	doc.Volumes[0].Kind = "empty"
	first := b.Adopt(b.Must("run", "--json", "--rm", "--detach", "--name", "keep", b.Write("keep.json", doc)))
	harness.Eventually(t, "the file", func() bool {
		_, err := os.Stat(filepath.Join(first.Dir, "volumes/data/file"))
		return err == nil
	})
	again := b.Adopt(b.Must("restart", "--json", "keep"))
	again.Sees("a", "file")
	b.Must("stop", "keep")
	if all := b.PS(); len(all) != 0 {
		t.Errorf("ps --all: %+v", all)
	}
}

// logs shows all apps in the order of time, up to a time, and the stager's own log.
func TestLogsOfAllApps(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("turns", 0o755)
	const await = "await() { until [ -e /turns/$1 ]; do sleep 0.02; done; }; "
	path := b.Write("talk.json", harness.PodOf(
		suite.Shell("a", await+"echo one; await 3; echo three; await 5; printf last"),
		suite.Shell("b", await+"await 2; echo two >&2; await 4; echo four"),
	).HostVolume("turns", dir, "/turns"))
	p := b.Adopt(b.Must("run", "--json", "--detach", "--exit-policy", "all", path))
	follow := p.Command("logs", "--follow", p.Name)
	var stdout, stderr bytes.Buffer
	follow.Stdout, follow.Stderr = &stdout, &stderr
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	// A line's time is that of its logging: the next one is written when it is in the log.
	for i, line := range []struct{ app, text string }{{"a", "one"}, {"b", "two"}, {"a", "three"}, {"b", "four"}} {
		p.Sees(line.app, line.text)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i+2)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := follow.Wait(); err != nil || stderr.String() != "b | two\n" || strings.Count(stdout.String(), "\n") != 4 {
		t.Errorf("logs --follow: %v: %q, %q", err, &stdout, &stderr)
	}
	if r := p.Launcher("logs", p.Name); r.Code != 0 || r.Stdout != "a | one\na | three\nb | four\na | last\n" || r.Stderr != "b | two\n" {
		t.Errorf("logs: %+v", r)
	}
	var lines []struct{ Time, App, Stream, Message string }
	for line := range strings.Lines(p.Must("logs", "--json", p.Name)) {
		var one struct{ Time, App, Stream, Message string }
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		lines = append(lines, one)
	}
	if len(lines) != 5 || lines[1].Message != "two" || lines[1].App != "b" || lines[1].Stream != "stderr" || lines[4].Message != "last" {
		t.Errorf("logs --json: %+v", lines)
	}
	if r := p.Launcher("logs", "--until", lines[2].Time, p.Name); r.Stdout != "a | one\n" || r.Stderr != "b | two\n" {
		t.Errorf("logs --until: %+v", r)
	}
	if r := p.Launcher("logs", "--until", lines[4].Time, p.Name, "a"); r.Stdout != "one\nthree\n" {
		t.Errorf("logs --until of an app: %+v", r)
	}
	if out := p.Must("logs", "--stager", "--follow", p.Name); out != p.StagerLog() || !strings.Contains(out, "app ended") {
		t.Errorf("logs --stager: %q", out)
	}
}

// inspect shows a pod or an image; gc --dry-run deletes nothing.
func TestInspectAndDryRun(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("seen", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	var pod struct {
		UUID, State string
		Plan        struct{ Layers []any }
		Manifest    struct{ Name string }
		Status      map[string]harness.AppStatus
	}
	if err := json.Unmarshal([]byte(b.Must("inspect", "seen")), &pod); err != nil {
		t.Fatal(err)
	}
	if pod.UUID != p.UUID || pod.State != "running" || len(pod.Plan.Layers) == 0 || pod.Manifest.Name != "seen" || pod.Status["a"].PID == 0 {
		t.Errorf("%+v", pod)
	}
	if out := b.Must("inspect", "--json", "kurma.io/stager/tests/busybox"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"acKind":"ImageManifest"`) && !strings.Contains(out, `"acKind": "ImageManifest"`) {
		t.Errorf("inspect of an image: %s", out)
	}
	if r := b.Launcher("inspect", "nothing"); r.Code != 1 || !strings.Contains(r.Stderr, `no such pod or image: "nothing"`) {
		t.Errorf("%+v", r)
	}
	if out := b.Must("gc", "--dry-run"); out != "" {
		t.Errorf("gc --dry-run with a live pod: %q", out)
	}
	b.Must("stop", "seen")
	for range 2 {
		if out := b.Must("gc", "--dry-run"); out != "pod "+p.UUID+"\n" {
			t.Errorf("gc --dry-run: %q", out)
		}
	}
	if out := b.Must("gc"); out != "pod "+p.UUID+"\n" {
		t.Errorf("gc: %q", out)
	}
}

// An exported image can be imported; of a signed one every byte is the same.
func TestExportedImages(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("out", 0o755)
	stager := filepath.Join(dir, "stager.aci")
	b.Must("image", "export", names.Image, stager)
	for suffix, from := range map[string]string{"": os.Getenv("STAGER_ACI"), ".asc": os.Getenv("STAGER_ACI") + ".asc"} {
		have, err := os.ReadFile(stager + suffix)
		want, wantErr := os.ReadFile(from)
		if err != nil || wantErr != nil || !bytes.Equal(have, want) {
			t.Errorf("stager.aci%s differs from what was imported: %v, %v", suffix, err, wantErr)
		}
	}
	busybox := filepath.Join(dir, "busybox.aci")
	if r := b.Launcher("image", "export", "kurma.io/stager/tests/busybox", busybox); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	b.Must("image", "import", busybox)
	b.LayersAreNow()
	if r := b.Launcher("run", "--rm", "kurma.io/stager/tests/busybox", "--", "-c", "echo it works"); r.Code != 0 || r.Stdout != "it works\n" {
		t.Errorf("a pod of the exported image: %+v", r)
	}
	if r := b.Launcher("image", "export", "kurma.io/stager/tests/busybox", busybox); r.Code != 1 || !strings.Contains(r.Stderr, "file exists") {
		t.Errorf("an export over a file: %+v", r)
	}
}

// validate says what would be refused, changed or ignored, and starts nothing.
func TestValidate(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	limited := suite.Shell("a", "exit 0")
	limited.App.Isolators = []any{
		harness.Isolator("resource/memory", map[string]string{"limit": "16Mi"}),
		harness.Isolator("os/linux/capabilities-retain-set", map[string][]string{"set": {"CAP_CHOWN", "CAP_FLY"}}),
		harness.Isolator("example.com/unknown", true),
	}
	out := b.Must("validate", b.Write("limited.json", harness.PodOf(limited)))
	for _, want := range []string{
		"app \"a\": isolator os/linux/capabilities-retain-set is modified: ", "app \"a\": isolator example.com/unknown is ignored: ",
		"pod \"limited\" with 1 app can be started\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	twice := suite.Shell("a", "exit 0")
	twice.App.Isolators = []any{
		harness.Isolator("os/linux/capabilities-retain-set", map[string][]string{"set": {"CAP_CHOWN"}}),
		harness.Isolator("os/linux/capabilities-remove-set", map[string][]string{"set": {"CAP_KILL"}}),
	}
	path := b.Write("twice.json", harness.PodOf(twice))
	if r := b.Launcher("validate", path); r.Code != 1 || !strings.Contains(r.Stderr, "must not be used together") {
		t.Errorf("%+v", r)
	}
	if all := b.PS(); len(all) != 0 {
		t.Errorf("validate has left %+v", all)
	}
	// The stager refuses the same.
	b.Refuse("twice", harness.PodOf(twice), "must not be used together")
}
