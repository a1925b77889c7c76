package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// appState is an app of `status --json`.
type appState struct {
	PID, Restarts, LastExitCode int
	Exited, Restarting          bool
	LastExitReason              string
}

func appOf(p *harness.Pod, name string) appState {
	p.T.Helper()
	var apps map[string]appState
	if err := json.Unmarshal([]byte(p.Must("status", "--json", p.Name)), &apps); err != nil {
		p.T.Fatal(err)
	}
	return apps[name]
}

// restart POD/APP starts one app again: one that runs, that has ended, or that waits for its back-off. The others run on.
func TestOneAppIsRestarted(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	hungry := suite.Shell("hungry", "echo run; test -e /ran && exec sleep 1000; >/ran; exec dd if=/dev/zero of=/dev/null bs=100M")
	hungry.App.Isolators = append(hungry.App.Isolators, harness.Isolator("resource/memory", map[string]string{"limit": "16Mi"}))
	p := b.Up("p", harness.PodOf(
		suite.Shell("runs", "echo run; exec sleep 1000"),
		suite.Shell("ended", "echo run; test -e /ran && exec sleep 1000; >/ran; exit 4"),
		hungry,
		suite.Shell("other", "exec sleep 1000"),
	))
	other := appOf(p, "other").PID
	p.Exited("ended")
	p.Exited("hungry")
	before := appOf(p, "runs").PID
	harness.Eventually(t, "the app has run", func() bool { return p.Logs("runs") == "run\n" })
	if r := b.Launcher("restart", "p/runs", "p/ended", "p/hungry"); r.Code != 0 || r.Stdout != "" {
		t.Fatalf("restart: %+v", r)
	}
	for _, want := range []struct {
		app    string
		code   int
		reason string
	}{{"runs", 143, "terminated"}, {"ended", 4, ""}, {"hungry", 137, "oom-killed"}} {
		got := appOf(p, want.app)
		if got.PID == 0 || got.PID == before || got.Restarts != 1 || got.LastExitCode != want.code || got.LastExitReason != want.reason {
			t.Errorf("status of %s: %+v", want.app, got)
		}
		harness.Eventually(t, "both runs are in the log of "+want.app, func() bool { return p.Logs(want.app) == "run\nrun\n" })
	}
	if got := appOf(p, "other").PID; got != other {
		t.Errorf("the other app has PID %d, had %d", got, other)
	}
	table := p.Must("status", "p")
	for _, want := range [][]string{{"runs", "running", "1", "143", "terminated"}, {"hungry", "running", "1", "137", "out", "of", "memory"}, {"other", "running", "0", "-", "-"}} {
		found := false
		for line := range strings.Lines(table) {
			fields := strings.Fields(line)
			if fields[0] == want[0] {
				found = strings.Join(append(fields[:2:2], fields[3:]...), " ") == strings.Join(want, " ")
			}
		}
		if !found {
			t.Errorf("status: %s, want a row with %q", table, want)
		}
	}
	if out := b.Must("ps"); !strings.Contains(out, "running, out of memory, 3 restarts") {
		t.Errorf("ps: %s", out)
	}
	if out := b.Must("inspect", "--json", "p"); !strings.Contains(out, `"restarts":3`) || !strings.Contains(out, `"lastExitCode":143`) {
		t.Errorf("inspect: %s", out)
	}
	// The apps' last states are kept.
	p.Must("stop", "p")
	if got := appOf(p, "ended"); !got.Exited || got.Restarts != 1 || got.LastExitCode != 4 {
		t.Errorf("status of a pod that has ended: %+v", got)
	}
	if out := b.Must("ps", "--all"); !strings.Contains(out, ", 3 restarts") {
		t.Errorf("ps --all: %s", out)
	}
}

func TestRestartsOfAppsAreRefused(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"restart": "on-failure"}`))
	p := b.Up("p", harness.PodOf(
		suite.Shell("a", "exec sleep 1000"),
		suite.Shell("fails", "echo run; test -e /go && exec sleep 1000; exit 3"),
		suite.Shell("gone", "rm /bin/busybox; exec sleep 1000"),
	))
	for _, c := range [][2]string{
		{"p/none", `launcher: restart "p/none": pod "p" has no app "none"; want a, fails, gone`},
		{"p/", `launcher: restart "p/": no app after p/; want a, fails, gone`},
		{"none/a", `launcher: restart "none/a": no such pod: "none"`},
	} {
		if r := b.Launcher("restart", c[0]); r.Code != 1 || !strings.HasPrefix(r.Stderr, c[1]) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("restart %s: %+v", c[0], r)
		}
	}
	// A back-off ends at once.
	harness.Eventually(t, "the app fails often", func() bool { a := appOf(p, "fails"); return a.Restarts >= 6 && a.Restarting })
	if out := p.Must("status", "p"); !strings.Contains(out, "restarting") {
		t.Errorf("status: %s", out)
	}
	p.Must("restart", "p/fails")
	// A start that fails is an error, and the policy goes on.
	failed := `launcher: restart "p/gone": app "gone": `
	if r := b.Launcher("restart", "p/gone"); r.Code != 1 || !strings.HasPrefix(r.Stderr, failed) || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("restart of an app without its program: %+v", r)
	}
	if got := appOf(p, "gone"); got.Restarts == 0 {
		t.Errorf("status of an app without its program: %+v", got)
	}
	p.Must("stop", "p")
	want := `launcher: restart "p/a": pod "p" has ended`
	if r := b.Launcher("restart", "p/a"); r.Code != 1 || !strings.HasPrefix(r.Stderr, want) {
		t.Errorf("restart of an app of a pod that has ended: %+v", r)
	}
}
