package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stubborn is a script that reports SIGTERM and does not end.
const stubborn = `trap 'echo asked' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`

// TestStopIsOneGracePeriod: five apps do not end on SIGTERM. Each gets SIGTERM once, and one grace
// period applies to all.
func TestStopIsOneGracePeriod(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"gracePeriod": "4s"}`))
	dir := b.folder("sync", 0o777)
	up := b.signalPipe(filepath.Join(dir, "up"))
	var apps []appDoc
	for i := range 5 {
		app := shell(fmt.Sprintf("app%d", i), strings.ReplaceAll(stubborn, "echo asked", fmt.Sprintf("echo asked >>/sync/asked%d", i)))
		apps = append(apps, app)
	}
	p := b.up("stubborn", podOf(apps...).hostVolume("sync", dir, "/sync"))
	for range apps {
		up.line()
	}
	p.note()
	begin := time.Now()
	p.must("stop", p.name)
	if took := time.Since(begin); took < 4*time.Second || took > 16*time.Second {
		t.Errorf("the stop took %s, want a grace period of 4 s, once", took)
	}
	p.must("rm", p.name)
	p.checkGone()
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
	b := newMachine(t)
	dir := b.folder("sync", 0o777)
	script := `trap 'echo cleaned >/sync/cleaned; exit 0' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`
	up := b.signalPipe(filepath.Join(dir, "up"))
	p := b.up("quick", podOf(shell("a", script)).hostVolume("sync", dir, "/sync"))
	up.line()
	p.stop()
	if _, err := os.Stat(filepath.Join(dir, "cleaned")); err != nil {
		t.Error(err)
	}
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
			b := newMachine(t, stagerConfig(`{"gracePeriod": "300ms"}`))
			dir := b.folder("sync", 0o777)
			up := b.signalPipe(filepath.Join(dir, "up"))
			slow := shell("slow", "echo main >>/sync/main")
			slow.App.EventHandlers = []handlerDoc{
				{"pre-start", []string{"/bin/sh", "-c", tt.handler}},
				{"post-stop", []string{"/bin/sh", "-c", "echo stopped >/sync/stopped"}},
			}
			doc := podOf(shell("other", "exec sleep 1000"), slow).hostVolume("sync", dir, "/sync")
			cmd := b.command("run", "--name", "slow", b.write("slow.json", doc))
			done := make(chan result, 1)
			go func() { done <- finish(t, cmd) }()
			up.line()
			b.note()
			b.must("stop", "slow")
			r := <-done
			if strings.Contains(r.stderr, "panic") || r.code == -1 {
				t.Errorf("exit status %d: %s", r.code, r.stderr)
			}
			if _, err := os.Stat(filepath.Join(dir, "main")); err == nil {
				t.Error("the main process was started")
			}
			if _, err := os.Stat(filepath.Join(dir, "stopped")); err != nil {
				t.Errorf("post-stop: %v", err)
			}
			b.checkGone()
		})
	}
}

// The last of several apps fails to start. The others are stopped, and one line names
// the app.
func TestAFailedStartStopsTheOtherApps(t *testing.T) {
	t.Parallel()
	failing := map[string]func(*appDoc){
		"no such program": func(a *appDoc) { a.App.Exec = []string{"/no/such"} },
		"not in PATH":     func(a *appDoc) { a.App.Exec = []string{"nosuch"} },
		"not executable":  func(a *appDoc) { a.App.Exec = []string{"/etc/passwd"} },
		"no such user":    func(a *appDoc) { a.App.User = "nosuchuser" },
		"no such group":   func(a *appDoc) { a.App.Group = "nosuchgroup" },
		"no such file":    func(a *appDoc) { a.App.User = "/no/such/file" },
		"no such folder":  func(a *appDoc) { a.App.WorkingDirectory = "/no/such/folder" },
		"pre-start fails": func(a *appDoc) {
			a.App.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/sh", "-c", "exit 7"}}}
		},
	}
	for name, spoil := range failing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newMachine(t)
			bad := shell("bad", "exec sleep 1000")
			spoil(&bad)
			b.refuse("p", podOf(shell("one", "exec sleep 1000"), shell("two", "exec sleep 1000"), bad), `"bad"`)
		})
	}
}

// Ten apps end at once with ten exit codes, others end by signals, and orphans of one
// app end as well. Each exit code is the app's own, and no zombie is left.
func TestEachExitCodeIsTheAppsOwn(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("sync", 0o777)
	up := b.signalPipe(filepath.Join(dir, "up"))
	var apps []appDoc
	for i := range 10 {
		script := fmt.Sprintf("(exit 99) & (sleep 0; exit 98) & echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.05; done; exit %d", i)
		apps = append(apps, shell(fmt.Sprintf("app%d", i), script))
	}
	apps = append(apps, shell("killed", "kill -9 $$"), shell("terminated", "kill -15 $$"), shell("aborted", "kill -6 $$"))
	p := b.up("ten", podOf(apps...).hostVolume("sync", dir, "/sync"))
	for range 10 {
		up.line()
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if code, reason := p.exited(fmt.Sprintf("app%d", i)); code != i || reason != "" {
			t.Errorf("app%d: exit code %d, reason %q", i, code, reason)
		}
	}
	for app, want := range map[string]int{"killed": 137, "terminated": 143, "aborted": 134} {
		if code, reason := p.exited(app); code != want || reason != app {
			t.Errorf("%s: exit code %d, reason %q", app, code, reason)
		}
	}
	if len(p.ps()) != 1 || p.ps()[0].State != "running" {
		t.Errorf("pods %+v, want the pod running with all of its apps ended", p.ps())
	}
	p.stop()
}

// An app leaves thousands of orphans. All are reaped, the pod goes on, and status reports
// the app's own exit code.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	p := b.up("orphans", podOf(
		shell("many", `i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; exit 23`),
		shell("other", "exec sleep 1000"),
	))
	if code, _ := p.exited("many"); code != 23 {
		t.Errorf("exit code %d, want 23", code)
	}
	eventually(t, "no zombie", func() bool {
		for _, pid := range p.processes() {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
	if s := p.status()["other"]; s.Exited {
		t.Errorf("other: %+v", s)
	}
	p.stop()
}

// Apps can end before the supervisor knows their PIDs.
func TestAppsMayEndAtOnce(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	var apps []appDoc
	for i := range 20 {
		apps = append(apps, command(fmt.Sprintf("app%d", i), "/bin/sh", "-c", fmt.Sprintf("echo said %d; exit %d", i, i)))
	}
	p := b.up("short", podOf(apps...))
	for i := range apps {
		app := fmt.Sprintf("app%d", i)
		if code, _ := p.exited(app); code != i {
			t.Errorf("%s: exit code %d, want %d", app, code, i)
		}
		if log := p.logs(app); log != fmt.Sprintf("said %d\n", i) {
			t.Errorf("%s: log %q", app, log)
		}
	}
	p.stop()
}

func TestExitPoliciesDecideThePodsEnd(t *testing.T) {
	t.Parallel()
	ends := func(name string, code int) appDoc { return shell(name, fmt.Sprintf("exit %d", code)) }
	stays := shell("stays", "exec sleep 1000")
	for _, tt := range []struct {
		policy string
		apps   []appDoc
		want   int
	}{
		{"all", []appDoc{ends("a", 0), ends("b", 0)}, 0},
		{"all", []appDoc{ends("a", 0), ends("b", 5)}, 5},
		{"failure", []appDoc{stays, ends("b", 6)}, 6},
	} {
		t.Run(fmt.Sprintf("%s %d", tt.policy, tt.want), func(t *testing.T) {
			t.Parallel()
			b := newMachine(t, stagerConfig(fmt.Sprintf(`{"exitPolicy": %q, "gracePeriod": "1s"}`, tt.policy)))
			r := b.launcher("run", "--rm", "--name", "p", b.write("p.json", podOf(tt.apps...)))
			if r.code != tt.want {
				t.Errorf("exit status %d, want %d: %s", r.code, tt.want, r.stderr)
			}
			b.checkGone()
		})
	}
}

// The test counts the runs of an app that fails twice.
func TestAFailingAppIsRestarted(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"restart": "on-failure", "exitPolicy": "all"}`))
	dir := b.folder("sync", 0o777)
	script := `echo run >>/sync/runs; [ $(wc -l </sync/runs) -ge 3 ] || exit 9; exit 0`
	begin := time.Now()
	r := b.launcher("run", "--name", "p", b.write("p.json", podOf(shell("a", script)).hostVolume("sync", dir, "/sync")))
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if r.code != 0 || string(runs) != "run\nrun\nrun\n" || err != nil {
		t.Errorf("exit status %d, runs %q, %v: %s", r.code, runs, err, r.stderr)
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
	for name, doc := range map[string]podDoc{"own PIDs": podOf(shell("a", script)), "host's PIDs": hostPID(shell("a", script))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newMachine(t)
			dir := b.folder("sync", 0o777)
			up := b.signalPipe(filepath.Join(dir, "up"))
			p := b.up("p", doc.hostVolume("sync", dir, "/sync"))
			up.line()
			if r := p.exec("a", "/bin/sh", "-c", "! test -e /sync/asked"); r.code != 0 || p.status()["a"].Exited {
				t.Errorf("the app's signals stop the pod: %+v", r)
			}
			p.stop()
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
			b := newMachine(t)
			dir := b.folder("sync", 0o777)
			up := b.signalPipe(filepath.Join(dir, "up"))
			script := `trap 'echo asked >>/sync/asked; exit 0' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`
			cmd := b.command("run", "--name", "p", b.write("p.json", podOf(shell("a", script)).hostVolume("sync", dir, "/sync")))
			done := make(chan result, 1)
			go func() { done <- finish(t, cmd) }()
			up.line()
			eventually(t, "the pod is up", func() bool { return b.ps()[0].State == "running" })
			b.note()
			if err := unix.Kill(b.ps()[0].PID, signal); err != nil {
				t.Fatal(err)
			}
			if r := <-done; r.code != 0 {
				t.Errorf("exit status %d: %s", r.code, r.stderr)
			}
			if asked, err := os.ReadFile(filepath.Join(dir, "asked")); string(asked) != "asked\n" {
				t.Errorf("the app was asked %q, %v", asked, err)
			}
		})
	}
}
