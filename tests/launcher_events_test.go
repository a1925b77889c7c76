package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// podEvent is a line of `events --json`.
type podEvent struct {
	Time                           time.Time
	Action, UUID, Pod, App, Reason string
	Code                           *int
}

// events returns what has happened, each as "ACTION POD/APP CODE REASON", without what is empty.
func (b *machine) events(args ...string) []string {
	b.t.Helper()
	return b.readEvents(b.must(append([]string{"events", "--json", "--stream=false"}, args...)...))
}

func (b *machine) readEvents(lines string) []string {
	b.t.Helper()
	var all []string
	for line := range strings.Lines(lines) {
		var e podEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.UUID == "" || time.Since(e.Time) > time.Hour {
			b.t.Fatalf("%v: %q", err, line)
		}
		text := e.Action + " " + e.Pod
		if e.App != "" {
			text += "/" + e.App
		}
		if e.Code != nil {
			code, _ := json.Marshal(e.Code)
			text += " " + string(code)
		}
		if e.Reason != "" {
			text += " " + e.Reason
		}
		all = append(all, text)
	}
	return all
}

// check compares events with those that are expected.
func (b *machine) checkEvents(got []string, want ...string) {
	b.t.Helper()
	if !slices.Equal(got, want) {
		b.t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// follower is `events` that waits for more.
type follower struct {
	cmd *exec.Cmd
	out string // file
}

func (b *machine) followEvents(args ...string) *follower {
	b.t.Helper()
	f := &follower{b.command(append([]string{"events"}, args...)...), filepath.Join(b.dir, "followed")}
	out, err := os.Create(f.out)
	if err != nil {
		b.t.Fatal(err)
	}
	f.cmd.Stdout, f.cmd.Stderr = out, os.Stderr
	if err := f.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	_ = out.Close()
	b.t.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
	})
	return f
}

func (f *follower) text() string {
	text, _ := os.ReadFile(f.out)
	return string(text)
}

// Each process that makes a change records it: the launcher that makes the pod, its monitor, the
// launcher that deletes it.
func TestEventsOfPodsAndApps(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	path := b.write("short.json", podOf(shell("a", "exit 3")))
	if r := b.launcher("run", "--rm", path); r.code != 3 {
		t.Fatalf("run: %+v", r)
	}
	short := []string{"created short", "started short", "started short/a", "ready short", "exited short/a 3", "exited short 3", "removed short"}
	got := b.events()
	// The stager may report the app's end before or after the launcher sees that it was ready.
	if i, j := slices.Index(got, "ready short"), slices.Index(got, "exited short/a 3"); i == j+1 && j > 0 {
		got[i], got[j] = got[j], got[i]
	}
	b.checkEvents(got, short...)

	begin := time.Now().Format(time.RFC3339Nano)
	follower := b.followEvents("--json", "--since", begin)
	hungry := shell("hungry", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`)
	hungry.App.Isolators = append(hungry.App.Isolators, isolator("resource/memory", map[string]string{"limit": "16Mi"}))
	p := b.up("long", podOf(hungry))
	eventually(t, "the follower's line of a killed app", func() bool { return strings.Contains(follower.text(), "oom-killed") })
	p.must("stop", "long")
	p.must("rm", "long")
	eventually(t, "the follower's last line", func() bool { return strings.Contains(follower.text(), `"removed"`) })
	got = b.readEvents(follower.text())
	for _, want := range []string{"started long/hungry", "exited long/hungry 137 oom-killed", "exited long 137 oom-killed", "removed long"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, strings.Join(got, "\n"))
		}
	}
	if err := follower.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = follower.cmd.Wait()
	b.checkEvents(b.events("--since", begin), got...)
	b.checkEvents(b.events("--until", begin), b.events()[:len(short)]...)
	if out := b.must("events", "--stream=false"); !strings.Contains(out, "  app long/hungry exited (137), oom-killed\n") || !strings.Contains(out, "  pod long removed\n") {
		t.Errorf("for a person:\n%s", out)
	}
	if out := b.must("events", "--until", "0s"); strings.Count(out, "\n") != len(b.events()) {
		t.Errorf("until now:\n%s", out)
	}
}

// The end of a pod whose monitor was killed is recorded by the launcher that takes it down, and an app that
// starts again has each of its runs.
func TestEventsOfRestartsAndKilledMonitors(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	path := b.write("again.json", podOf(shell("a", "echo up; sleep 0.1; exit 1")))
	p := b.adopt(b.must("run", "--json", "--detach", "--restart", "on-failure", path))
	eventually(t, "a restart", func() bool { return slices.Contains(b.events(), "restarting again/a") })
	p.note()
	monitor := p.monitor()
	if err := syscall.Kill(monitor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a dead pod", func() bool { return b.ps()[0].State == "dead" })
	b.must("stop", "again")
	b.must("gc")
	got := b.events()
	if last := got[len(got)-2:]; !slices.Equal(last, []string{"exited again 137 SIGKILL", "removed again"}) {
		t.Errorf("the last events are %q", last)
	}
	got = slices.DeleteFunc(got, func(e string) bool { return e == "ready again" }) // at any time after the app's first start
	i := slices.Index(got, "restarting again/a")
	if i < 1 || got[i-1] != "exited again/a 1" {
		t.Errorf("events:\n%s", strings.Join(got, "\n"))
	}
}

// A follower whose output nobody reads waits alone, and a signal ends it.
func TestAFollowerThatIsNotReadDisturbsNoPod(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p := b.up("quiet", podOf(shell("a", "exec sleep 1000")))
	// More events than the pipe takes.
	var many strings.Builder
	for range 2000 {
		many.WriteString(`{"time":"2026-01-01T00:00:00Z","action":"ready","uuid":"` + p.uuid + `","pod":"before"}` + "\n")
	}
	file := filepath.Join(b.pods, ".events")
	recorded, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append([]byte(many.String()), recorded...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.command("events", "--json", "--since", "2025-01-01T00:00:00Z")
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	buffer := make([]byte, 1)
	if _, err := read.Read(buffer); err != nil { // it has begun
		t.Fatal(err)
	}
	p.stop()
	if got := b.events("--since", "1h"); got[len(got)-1] != "removed quiet" {
		t.Errorf("events:\n%s", strings.Join(got, "\n"))
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("the follower ended with %v", cmd.ProcessState)
	}
}
