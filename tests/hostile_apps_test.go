package tests

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostileApp returns an app that runs a program of package hostile from the volume "probe".
func hostileApp(program string) appDoc { return command(program, "/probe/probe", program) }

// An app that stops every process that starts in the pod delays the others, and hangs nothing: 14 apps
// come up, status and exec answer, a neighbour restarts, and the stop takes the grace period.
func TestAnAppStopsEveryNewProcess(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	b := newMachine(t, stagerConfig(`{"gracePeriod": "1s", "restart": "always"}`))
	dir := b.folder("probe", 0o755)
	b.testProgram(dir)
	apps := []appDoc{hostileApp("stopper")}
	for i := range 13 {
		apps = append(apps, shell(fmt.Sprint("app", i), "exec sleep 1000"))
	}
	p := b.up("p", podOf(apps...).hostVolume("probe", dir, "/probe"))
	for range 5 {
		within(t, "status", 5*time.Second, func() { p.status() })
		within(t, "exec", 30*time.Second, func() {
			if r := p.exec("app3", "true"); r.code != 0 {
				t.Errorf("exec: exit status %d: %s", r.code, r.stderr)
			}
		})
	}
	before := p.status()["app5"].PID
	if err := unix.Kill(before, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, "restart", 30*time.Second, func() {
		eventually(t, "app5 runs again", func() bool { s := p.status()["app5"]; return !s.Exited && s.PID != before && s.PID != 0 })
	})
	begin := time.Now()
	p.stop()
	if took := time.Since(begin); took > grace+time.Second {
		t.Errorf("the stop took %s, want a grace period of %s and a second at most", took, grace)
	}
}

// within calls f and fails if it takes longer than limit.
func within(t *testing.T, what string, limit time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > limit {
		t.Errorf("%s took %s, want %s at most", what, took, limit)
	}
}
