package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// stubborn is a script that reports SIGTERM and does not end.
const stubborn = `trap 'echo asked' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`

// TestStopIsOneGracePeriod: five apps do not end on SIGTERM. Each gets SIGTERM once, and one grace
// period applies to all.
func TestStopIsOneGracePeriod(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "4s"}`))
	dir := b.Folder("sync", 0o777)
	up := b.SignalPipe(filepath.Join(dir, "up"))
	var apps []harness.AppDoc
	for i := range 5 {
		app := suite.Shell(fmt.Sprintf("app%d", i), strings.ReplaceAll(stubborn, "echo asked", fmt.Sprintf("echo asked >>/sync/asked%d", i)))
		apps = append(apps, app)
	}
	p := b.Up("stubborn", harness.PodOf(apps...).HostVolume("sync", dir, "/sync"))
	for range apps {
		up.Line()
	}
	p.Note()
	begin := time.Now()
	p.Must("stop", p.Name)
	if took := time.Since(begin); took < 4*time.Second || took > 16*time.Second {
		t.Errorf("the stop took %s, want a grace period of 4 s, once", took)
	}
	p.Must("rm", p.Name)
	p.CheckGone()
	for i := range apps {
		asked, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("asked%d", i)))
		if err != nil || string(asked) != "asked\n" {
			t.Errorf("app%d got SIGTERM as %q (%v), want it once", i, asked, err)
		}
	}
}

// The test stops a pod at the moment it is up: an app that handles SIGTERM can do so.
func TestAnAppHandlesAStopAtOnce(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	script := `trap 'echo cleaned >/sync/cleaned; exit 0' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`
	up := b.SignalPipe(filepath.Join(dir, "up"))
	p := b.Up("quick", harness.PodOf(suite.Shell("a", script)).HostVolume("sync", dir, "/sync"))
	up.Line()
	p.Stop()
	if _, err := os.Stat(filepath.Join(dir, "cleaned")); err != nil {
		t.Error(err)
	}
}

// SIGTERM would not end the app.
func TestAnAppIsStoppedByTheSignalOfItsAnnotation(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "20s"}`))
	dir := b.Folder("sync", 0o777)
	script := `trap 'echo cleaned >/sync/cleaned; exit 0' QUIT; trap '' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`
	up := b.SignalPipe(filepath.Join(dir, "up"))
	app := suite.Shell("a", script)
	app.Annotations = []harness.NameValue{{Name: names.StopSignalAnnotation, Value: "SIGQUIT"}}
	p := b.Up("quick", harness.PodOf(app).HostVolume("sync", dir, "/sync"))
	up.Line()
	p.Stop()
	if _, err := os.Stat(filepath.Join(dir, "cleaned")); err != nil {
		t.Error(err)
	}
	app.Annotations[0].Value = "SIGNAL"
	b.Refuse("wrong", harness.PodOf(app).HostVolume("sync", dir, "/sync"), names.StopSignalAnnotation, `"SIGNAL"`)
}

// The test stops a pod whose pre-start handler does not end.
func TestStopEndsAStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, handler string }{
		{"handler ends of SIGTERM", "echo up >/sync/up; exec sleep 1000"},
		{"handler does not", strings.ReplaceAll(stubborn, "echo asked", ":")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "300ms"}`))
			dir := b.Folder("sync", 0o777)
			up := b.SignalPipe(filepath.Join(dir, "up"))
			slow := suite.Shell("slow", "echo main >>/sync/main")
			slow.App.EventHandlers = []harness.HandlerDoc{
				{Name: "pre-start", Exec: []string{"/bin/sh", "-c", tt.handler}},
				{Name: "post-stop", Exec: []string{"/bin/sh", "-c", "echo stopped >/sync/stopped"}},
			}
			doc := harness.PodOf(suite.Shell("other", "exec sleep 1000"), slow).HostVolume("sync", dir, "/sync")
			cmd := b.Command("run", "--name", "slow", b.Write("slow.json", doc))
			done := make(chan harness.Result, 1)
			go func() { done <- harness.Finish(t, cmd) }()
			up.Line()
			b.Note()
			b.Must("stop", "slow")
			r := <-done
			if strings.Contains(r.Stderr, "panic") || r.Code == -1 {
				t.Errorf("exit status %d: %s", r.Code, r.Stderr)
			}
			if _, err := os.Stat(filepath.Join(dir, "main")); err == nil {
				t.Error("the main process was started")
			}
			if _, err := os.Stat(filepath.Join(dir, "stopped")); err != nil {
				t.Errorf("post-stop: %v", err)
			}
			b.CheckGone()
		})
	}
}

// The last of several apps fails to start. The others are stopped, and one line names
// the app.
func TestAFailedStartStopsTheOtherApps(t *testing.T) {
	t.Parallel()
	failing := map[string]func(*harness.AppDoc){
		"no such program": func(a *harness.AppDoc) { a.App.Exec = []string{"/no/such"} },
		"not in PATH":     func(a *harness.AppDoc) { a.App.Exec = []string{"nosuch"} },
		"not executable":  func(a *harness.AppDoc) { a.App.Exec = []string{"/etc/passwd"} },
		"no such user":    func(a *harness.AppDoc) { a.App.User = "nosuchuser" },
		"no such group":   func(a *harness.AppDoc) { a.App.Group = "nosuchgroup" },
		"no such file":    func(a *harness.AppDoc) { a.App.User = "/no/such/file" },
		"no such folder":  func(a *harness.AppDoc) { a.App.WorkingDirectory = "/no/such/folder" },
		"pre-start fails": func(a *harness.AppDoc) {
			a.App.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "exit 7"}}}
		},
	}
	for name, spoil := range failing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			bad := suite.Shell("bad", "exec sleep 1000")
			spoil(&bad)
			b.Refuse("p", harness.PodOf(suite.Shell("one", "exec sleep 1000"), suite.Shell("two", "exec sleep 1000"), bad), `"bad"`)
		})
	}
}

// Ten apps end at once with ten exit codes, others end by signals, and orphans of one
// app end as well. Each exit code is the app's own, and no zombie is left.
func TestEachExitCodeIsTheAppsOwn(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	up := b.SignalPipe(filepath.Join(dir, "up"))
	var apps []harness.AppDoc
	for i := range 10 {
		script := fmt.Sprintf("(exit 99) & (sleep 0; exit 98) & echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.05; done; exit %d", i)
		apps = append(apps, suite.Shell(fmt.Sprintf("app%d", i), script))
	}
	apps = append(apps, suite.Shell("killed", "kill -9 $$"), suite.Shell("terminated", "kill -15 $$"), suite.Shell("aborted", "kill -6 $$"))
	p := b.Up("ten", harness.PodOf(apps...).HostVolume("sync", dir, "/sync"))
	for range 10 {
		up.Line()
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if code, reason := p.Exited(fmt.Sprintf("app%d", i)); code != i || reason != "" {
			t.Errorf("app%d: exit code %d, reason %q", i, code, reason)
		}
	}
	for app, want := range map[string]int{"killed": 137, "terminated": 143, "aborted": 134} {
		if code, reason := p.Exited(app); code != want || reason != app {
			t.Errorf("%s: exit code %d, reason %q", app, code, reason)
		}
	}
	if len(p.PS()) != 1 || p.PS()[0].State != "running" {
		t.Errorf("pods %+v, want the pod running with all of its apps ended", p.PS())
	}
	p.Stop()
}

// An app leaves thousands of orphans. All are reaped, the pod goes on, and status reports
// the app's own exit code.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("orphans", harness.PodOf(
		suite.Shell("many", `i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; exit 23`),
		suite.Shell("other", "exec sleep 1000"),
	))
	if code, _ := p.Exited("many"); code != 23 {
		t.Errorf("exit code %d, want 23", code)
	}
	harness.Eventually(t, "no zombie", func() bool {
		for _, pid := range p.Processes() {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
	if s := p.Status()["other"]; s.Exited {
		t.Errorf("other: %+v", s)
	}
	p.Stop()
}

// Apps can end before the supervisor knows their PIDs.
func TestAppsMayEndAtOnce(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	var apps []harness.AppDoc
	for i := range 20 {
		apps = append(apps, suite.Command(fmt.Sprintf("app%d", i), "/bin/sh", "-c", fmt.Sprintf("echo said %d; exit %d", i, i)))
	}
	p := b.Up("short", harness.PodOf(apps...))
	for i := range apps {
		app := fmt.Sprintf("app%d", i)
		if code, _ := p.Exited(app); code != i {
			t.Errorf("%s: exit code %d, want %d", app, code, i)
		}
		if log := p.Logs(app); log != fmt.Sprintf("said %d\n", i) {
			t.Errorf("%s: log %q", app, log)
		}
	}
	p.Stop()
}

func TestExitPoliciesDecideThePodsEnd(t *testing.T) {
	t.Parallel()
	ends := func(name string, code int) harness.AppDoc { return suite.Shell(name, fmt.Sprintf("exit %d", code)) }
	stays := suite.Shell("stays", "exec sleep 1000")
	for _, tt := range []struct {
		policy string
		apps   []harness.AppDoc
		want   int
	}{
		{"all", []harness.AppDoc{ends("a", 0), ends("b", 0)}, 0},
		{"all", []harness.AppDoc{ends("a", 0), ends("b", 5)}, 5},
		{"failure", []harness.AppDoc{stays, ends("b", 6)}, 6},
	} {
		t.Run(fmt.Sprintf("%s %d", tt.policy, tt.want), func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t, harness.StagerConfig(fmt.Sprintf(`{"exitPolicy": %q, "gracePeriod": "1s"}`, tt.policy)))
			r := b.Launcher("run", "--rm", "--name", "p", b.Write("p.json", harness.PodOf(tt.apps...)))
			if r.Code != tt.want {
				t.Errorf("exit status %d, want %d: %s", r.Code, tt.want, r.Stderr)
			}
			b.CheckGone()
		})
	}
}

// The test counts the runs of an app that fails twice.
func TestAFailingAppIsRestarted(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"restart": "on-failure", "exitPolicy": "all"}`))
	dir := b.Folder("sync", 0o777)
	script := `echo run >>/sync/runs; [ $(wc -l </sync/runs) -ge 3 ] || exit 9; exit 0`
	begin := time.Now()
	r := b.Launcher("run", "--name", "p", b.Write("p.json", harness.PodOf(suite.Shell("a", script)).HostVolume("sync", dir, "/sync")))
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if r.Code != 0 || string(runs) != "run\nrun\nrun\n" || err != nil {
		t.Errorf("exit status %d, runs %q, %v: %s", r.Code, runs, err, r.Stderr)
	}
	// 100 and 200 ms of back-off.
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("two restarts within %s", took)
	}
}

// TestAppCannotStopThePod: an app may send the supervisor any signal; only the daemon's to the
// stager stop the pod.
func TestAppCannotStopThePod(t *testing.T) {
	t.Parallel()
	script := `trap 'echo asked >>/sync/asked; exit 0' TERM
		for s in TERM INT QUIT; do kill -$s $PPID || exit 3; done
		echo up >/sync/up
		while :; do sleep 1000 & wait $!; done`
	for name, doc := range map[string]harness.PodDoc{"own PIDs": harness.PodOf(suite.Shell("a", script)), "host's PIDs": hostPID(suite.Shell("a", script))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			dir := b.Folder("sync", 0o777)
			up := b.SignalPipe(filepath.Join(dir, "up"))
			p := b.Up("p", doc.HostVolume("sync", dir, "/sync"))
			up.Line()
			if r := p.Exec("a", "/bin/sh", "-c", "! test -e /sync/asked"); r.Code != 0 || p.Status()["a"].Exited {
				t.Errorf("the app's signals stop the pod: %+v", r)
			}
			p.Stop()
			if asked, err := os.ReadFile(filepath.Join(dir, "asked")); string(asked) != "asked\n" {
				t.Errorf("the daemon's stop has asked the app %q, %v, want once", asked, err)
			}
		})
	}
}

// The test sends the stager what a daemon may send.
func TestTheDaemonsSignalsStopThePod(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]unix.Signal{"TERM": unix.SIGTERM, "INT": unix.SIGINT, "QUIT": unix.SIGQUIT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			dir := b.Folder("sync", 0o777)
			up := b.SignalPipe(filepath.Join(dir, "up"))
			script := `trap 'echo asked >>/sync/asked; exit 0' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`
			cmd := b.Command("run", "--name", "p", b.Write("p.json", harness.PodOf(suite.Shell("a", script)).HostVolume("sync", dir, "/sync")))
			done := make(chan harness.Result, 1)
			go func() { done <- harness.Finish(t, cmd) }()
			up.Line()
			harness.Eventually(t, "the pod is up", func() bool { return b.PS()[0].State == "running" })
			b.Note()
			if err := unix.Kill(b.PS()[0].PID, signal); err != nil {
				t.Fatal(err)
			}
			if r := <-done; r.Code != 0 {
				t.Errorf("exit status %d: %s", r.Code, r.Stderr)
			}
			if asked, err := os.ReadFile(filepath.Join(dir, "asked")); string(asked) != "asked\n" {
				t.Errorf("the app was asked %q, %v", asked, err)
			}
		})
	}
}
