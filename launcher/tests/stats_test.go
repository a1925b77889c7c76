package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// stats and top show what each app uses, and its processes.
func TestStatsAndTop(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	busy := suite.Shell("busy", "while :; do :; done")
	busy.App.Isolators = []any{harness.Isolator("resource/memory", map[string]string{"limit": "32Mi"})}
	p := b.Up("used", harness.PodOf(busy, suite.Shell("idle", "sleep 999 & exec sleep 1000")))
	harness.Eventually(t, "the second process of idle", func() bool { return strings.Contains(b.Must("top", "used", "idle"), "sleep 999\n") })
	type appStats struct {
		Pod, App                  string
		CPUPercent                *float64
		Memory, MemoryLimit, PIDs *int64
	}
	all := make(map[string]appStats)
	for line := range strings.Lines(b.Must("stats", "--json", "used")) {
		var one appStats
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		all[one.App] = one
	}
	if a := all["busy"]; a.Pod != "used" || a.CPUPercent == nil || *a.CPUPercent < 1 || a.MemoryLimit == nil || *a.MemoryLimit != 32<<20 || a.Memory == nil || *a.Memory <= 0 {
		t.Errorf("busy: %+v", a)
	}
	if a := all["idle"]; a.CPUPercent == nil || *a.CPUPercent > 50 || a.PIDs == nil || *a.PIDs != 2 {
		t.Errorf("idle: %+v", a)
	}
	if out := b.Must("stats"); strings.Count(out, "\n") != 3 || !strings.HasPrefix(out, "POD   APP   CPU ") || !strings.Contains(out, "32.0 MiB") {
		t.Errorf("stats:\n%s", out)
	}
	if out := b.Must("top", "used", "idle"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "sleep 999\n") || !strings.Contains(out, "sleep 1000\n") {
		t.Errorf("top:\n%s", out)
	}
	var process struct {
		App     string
		PID     int
		Command []string
	}
	if err := json.Unmarshal([]byte(b.Must("top", "--json", "used", "busy")), &process); err != nil || process.PID != p.Status()["busy"].PID || len(process.Command) != 3 {
		t.Errorf("top --json: %+v, %v", process, err)
	}
	b.Must("stop", "used")
	if r := b.Launcher("top", "used"); r.Code != 1 || !strings.Contains(r.Stderr, "has ended") {
		t.Errorf("top of an ended pod: %+v", r)
	}
}

// The cgroups of a dead pod's apps stay until gc, but nothing uses anything there.
func TestStatsHasNoDeadPod(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	b.Up("dead", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	if err := unix.Kill(b.Monitor(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out := b.Must("wait", "dead"); out != "137\n" {
		t.Errorf("wait: %q", out)
	}
	for _, args := range [][]string{{"stats"}, {"stats", "dead"}} {
		if out := b.Must(args...); strings.Count(out, "\n") != 1 {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	b.Must("gc")
}
