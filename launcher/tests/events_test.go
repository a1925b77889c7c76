package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// podEvent is a line of `events --json`.
type podEvent struct {
	Time                           time.Time
	Action, UUID, Pod, App, Reason string
	Code                           *int
}

// events returns what has happened, each as "ACTION POD/APP CODE REASON", without what is empty.
func events(b *harness.Machine, args ...string) []string {
	b.T.Helper()
	return readEvents(b, b.Must(append([]string{"events", "--json", "--stream=false"}, args...)...))
}

func readEvents(b *harness.Machine, lines string) []string {
	b.T.Helper()
	var all []string
	for line := range strings.Lines(lines) {
		var e podEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.UUID == "" || time.Since(e.Time) > time.Hour {
			b.T.Fatalf("%v: %q", err, line)
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
func checkEvents(b *harness.Machine, got []string, want ...string) {
	b.T.Helper()
	if !slices.Equal(got, want) {
		b.T.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// follower is `events` that waits for more.
type follower struct {
	cmd *exec.Cmd
	out string // file
}

func followEvents(b *harness.Machine, args ...string) *follower {
	b.T.Helper()
	f := &follower{b.Command(append([]string{"events"}, args...)...), filepath.Join(b.Dir, "followed")}
	out, err := os.Create(f.out)
	if err != nil {
		b.T.Fatal(err)
	}
	f.cmd.Stdout, f.cmd.Stderr = out, os.Stderr
	if err := f.cmd.Start(); err != nil {
		b.T.Fatal(err)
	}
	_ = out.Close()
	b.T.Cleanup(func() {
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
	b := suite.NewMachine(t)
	path := b.Write("short.json", harness.PodOf(suite.Shell("a", "exit 3")))
	if r := b.Launcher("run", "--rm", path); r.Code != 3 {
		t.Fatalf("run: %+v", r)
	}
	short := []string{"created short", "started short", "started short/a", "ready short", "exited short/a 3", "exited short 3", "removed short"}
	got := events(b)
	// The stager may report the app's end before or after the launcher sees that it was ready.
	if i, j := slices.Index(got, "ready short"), slices.Index(got, "exited short/a 3"); i == j+1 && j > 0 {
		got[i], got[j] = got[j], got[i]
	}
	checkEvents(b, got, short...)

	begin := time.Now().Format(time.RFC3339Nano)
	follower := followEvents(b, "--json", "--since", begin)
	hungry := suite.Shell("hungry", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`)
	hungry.App.Isolators = append(hungry.App.Isolators, harness.Isolator("resource/memory", map[string]string{"limit": "16Mi"}))
	p := b.Up("long", harness.PodOf(hungry))
	harness.Eventually(t, "the follower's line of a killed app", func() bool { return strings.Contains(follower.text(), "oom-killed") })
	p.Must("stop", "long")
	p.Must("rm", "long")
	harness.Eventually(t, "the follower's last line", func() bool { return strings.Contains(follower.text(), `"removed"`) })
	got = readEvents(b, follower.text())
	for _, want := range []string{"started long/hungry", "exited long/hungry 137 oom-killed", "exited long 137 oom-killed", "removed long"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, strings.Join(got, "\n"))
		}
	}
	if err := follower.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = follower.cmd.Wait()
	checkEvents(b, events(b, "--since", begin), got...)
	checkEvents(b, events(b, "--until", begin), events(b)[:len(short)]...)
	if out := b.Must("events", "--stream=false"); !strings.Contains(out, "  app long/hungry exited (137), out of memory\n") || !strings.Contains(out, "  pod long removed\n") {
		t.Errorf("for a person:\n%s", out)
	}
	if out := b.Must("events", "--until", "0s"); strings.Count(out, "\n") != len(events(b)) {
		t.Errorf("until now:\n%s", out)
	}
}

// The starts of a pod's apps come before the pod is ready, however short the apps are.
func TestAppsStartBeforeTheirPodIsReady(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	var apps []harness.AppDoc
	for i := range 8 {
		apps = append(apps, suite.Shell(fmt.Sprint("a", i), "exit 3"))
	}
	path := b.Write("short.json", harness.PodOf(apps...))
	for round := range 10 {
		begin := time.Now().Format(time.RFC3339Nano)
		if r := b.Launcher("run", "--rm", path); r.Code != 3 {
			t.Fatalf("run: %+v", r)
		}
		got := events(b, "--since", begin)
		ready := slices.Index(got, "ready short")
		for i := range apps {
			if j := slices.Index(got, fmt.Sprint("started short/a", i)); j < 0 || j > ready {
				t.Fatalf("round %d: events:\n%s", round, strings.Join(got, "\n"))
			}
		}
	}
}

// The end of a pod whose monitor was killed is recorded by the launcher that takes it down, and an app that
// starts again has each of its runs.
func TestEventsOfRestartsAndKilledMonitors(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	path := b.Write("again.json", harness.PodOf(suite.Shell("a", "echo up; sleep 0.1; exit 1")))
	p := b.Adopt(b.Must("run", "--json", "--detach", "--restart", "on-failure", path))
	harness.Eventually(t, "a restart", func() bool { return slices.Contains(events(b), "restarting again/a") })
	p.Note()
	monitor := p.Monitor()
	if err := syscall.Kill(monitor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a dead pod", func() bool { return b.PS()[0].State == "dead" })
	b.Must("stop", "again")
	b.Must("gc")
	got := events(b)
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
	b := suite.NewMachine(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p := b.Up("quiet", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	// More events than the pipe takes.
	var many strings.Builder
	for range 2000 {
		many.WriteString(`{"time":"2026-01-01T00:00:00Z","action":"ready","uuid":"` + p.UUID + `","pod":"before"}` + "\n")
	}
	file := filepath.Join(b.Pods, ".events")
	recorded, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append([]byte(many.String()), recorded...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.Command("events", "--json", "--since", "2025-01-01T00:00:00Z")
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	buffer := make([]byte, 1)
	if _, err := read.Read(buffer); err != nil { // it has begun
		t.Fatal(err)
	}
	p.Stop()
	if got := events(b, "--since", "1h"); got[len(got)-1] != "removed quiet" {
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
