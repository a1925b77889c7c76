package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stats and top show what each app uses, and its processes.
func TestStatsAndTop(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	busy := shell("busy", "while :; do :; done")
	busy.App.Isolators = []any{isolator("resource/memory", map[string]string{"limit": "32Mi"})}
	p := b.up("used", podOf(busy, shell("idle", "sleep 999 & exec sleep 1000")))
	eventually(t, "the second process of idle", func() bool { return strings.Contains(b.must("top", "used", "idle"), "sleep 999\n") })
	type appStats struct {
		Pod, App                  string
		CPUPercent                *float64
		Memory, MemoryLimit, PIDs *int64
	}
	all := make(map[string]appStats)
	for line := range strings.Lines(b.must("stats", "--json", "used")) {
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
	if out := b.must("stats"); strings.Count(out, "\n") != 3 || !strings.HasPrefix(out, "POD   APP   CPU ") || !strings.Contains(out, "32.0 MiB") {
		t.Errorf("stats:\n%s", out)
	}
	if out := b.must("top", "used", "idle"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "sleep 999\n") || !strings.Contains(out, "sleep 1000\n") {
		t.Errorf("top:\n%s", out)
	}
	var process struct {
		App     string
		PID     int
		Command []string
	}
	if err := json.Unmarshal([]byte(b.must("top", "--json", "used", "busy")), &process); err != nil || process.PID != p.status()["busy"].PID || len(process.Command) != 3 {
		t.Errorf("top --json: %+v, %v", process, err)
	}
	b.must("stop", "used")
	if r := b.launcher("top", "used"); r.code != 1 || !strings.Contains(r.stderr, "has ended") {
		t.Errorf("top of an ended pod: %+v", r)
	}
}

// The cgroups of a dead pod's apps stay until gc, but nothing uses anything there.
func TestStatsHasNoDeadPod(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	b.up("dead", podOf(shell("a", "exec sleep 1000")))
	if err := unix.Kill(b.monitor(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out := b.must("wait", "dead"); out != "137\n" {
		t.Errorf("wait: %q", out)
	}
	for _, args := range [][]string{{"stats"}, {"stats", "dead"}} {
		if out := b.must(args...); strings.Count(out, "\n") != 1 {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	b.must("gc")
}
