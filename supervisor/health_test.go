package supervisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
)

// checked is a health check by a shell script, with the shortest pauses.
func checked(text string) *spec.HealthCheck {
	return &spec.HealthCheck{Command: script(text), Interval: time.Millisecond, Timeout: time.Minute, Retries: 2}
}

// awaitHealth waits until the pod's first app has the health.
func (r *running) awaitHealth(want HealthState) Health {
	r.t.Helper()
	var got AppStatus
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool {
		got = r.Status()[0]
		return got.Health != nil && got.Health.State == want
	}) {
		r.t.Fatalf("%+v, health %+v, want %s", got, got.Health, want)
	}
	return *got.Health
}

// awaitFile waits until there is a file.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool { _, err := os.Stat(path); return err == nil }) {
		t.Fatalf("no %s", path)
	}
}

// Each change of an app's health is reported, between those of its state; an app that does not run has none.
func TestHealthIsReported(t *testing.T) {
	b := newFakes(t)
	up := filepath.Join(t.TempDir(), "up")
	var mu sync.Mutex
	var all []string
	pod := start(t, Config{Grace: time.Minute, Changed: func(c Change) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.State, c.Health, c.Reason)))
	}, Apps: []App{{
		Name: "app", Main: b.sh("trap 'exit 3' TERM; while :; do sleep 0.01; done"),
		Health: checked("test -e " + up + " || { echo begun; echo down >&2; exit 4; }"),
	}}}).up()
	if got := pod.awaitHealth(Unhealthy); got.Failures < 2 || got.Reason != "exit code 4: down" {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(up, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := pod.awaitHealth(Healthy); got != (Health{State: Healthy}) {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(up); err != nil {
		t.Fatal(err)
	}
	pod.awaitHealth(Unhealthy)
	if err := pod.Restart(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	pod.awaitHealth(Unhealthy)
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if got := pod.Status()[0]; got.Health != nil {
		t.Errorf("an app that has ended is %+v", got.Health)
	}
	const want = "starting, running, unhealthy exit code 4: down, healthy, unhealthy exit code 4: down, ending, restarting, " +
		"starting, running, unhealthy exit code 4: down, ending, exited"
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A check that hangs has failed at its limit, with all processes of its session, and no two run at once.
func TestACheckThatHangsIsEnded(t *testing.T) {
	b := newFakes(t)
	dir := t.TempDir()
	check := checked("cd " + dir + "; kill -0 $(cat child) && >twice; trap '' TERM; sleep 1000 & echo $! >child; wait")
	check.Timeout = 200 * time.Millisecond
	pod := podOf(t, App{Main: b.sh("exec sleep 1000"), Health: check})
	if got := pod.awaitHealth(Unhealthy); got.Reason != "not ended within 200ms" && got.Reason != "the check before has not ended" {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "twice")); err == nil {
		t.Error("a check began before all processes of the one before had ended")
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// Checks end with the run of the app, and with the pod's stop, which wait for none.
func TestAChecksEndIsThatOfItsApp(t *testing.T) {
	b := newFakes(t)
	begun := filepath.Join(t.TempDir(), "begun")
	pod := podOf(t, App{Main: b.sh("exec sleep 1000"), Health: checked("trap '' TERM; >" + begun + "; sleep 1000 & wait")})
	for range 2 {
		awaitFile(t, begun)
		if err := os.Remove(begun); err != nil {
			t.Fatal(err)
		}
		if err := pod.Restart(t.Context(), "app"); err != nil {
			t.Fatal(err)
		}
		if got := pod.Status()[0].Health; got == nil || *got != (Health{State: HealthStarting}) {
			t.Errorf("the next run is %+v", got)
		}
	}
	awaitFile(t, begun)
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// An app that has ended for good is not checked.
func TestAnEndedAppIsNotChecked(t *testing.T) {
	b := newFakes(t)
	end, checks := filepath.Join(t.TempDir(), "end"), filepath.Join(t.TempDir(), "checks")
	pod := podOf(t, App{Main: b.sh("until test -e " + end + "; do sleep 0.01; done"), Health: checked("echo >>" + checks)})
	pod.awaitHealth(Healthy)
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod.awaitState(StateExited)
	before, err := os.ReadFile(checks)
	if err != nil {
		t.Fatal(err)
	}
	if got := pod.Status()[0]; got.Health != nil {
		t.Errorf("%+v", got.Health)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if after, err := os.ReadFile(checks); err != nil || len(after) != len(before) {
		t.Errorf("%d checks, then %d, %v", len(before), len(after), err)
	}
}

func TestAnUnhealthyAppIsRestartedByItsPolicy(t *testing.T) {
	b := newFakes(t)
	dir := t.TempDir()
	check := checked("test -e " + dir + "/again")
	check.Restart = true
	pod := podOf(t, App{Main: b.sh("cd " + dir + "; test ! -e once || >again; >once; exec sleep 1000"), Health: check})
	pod.awaitHealth(Healthy)
	if got := pod.Status()[0]; got.Restarts == 0 || got.Last == nil || got.Last.Code != 143 {
		t.Errorf("%+v, last %+v", got, got.Last)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// An app that became unhealthy before it was ready is restarted once it is. It backs off, but not from a person.
func TestAnUnhealthyAppBacksOff(t *testing.T) {
	b := newFakes(t)
	runs := filepath.Join(t.TempDir(), "runs")
	check := checked("exit 1")
	check.Restart = true
	isReady := make(chan struct{})
	pod := start(t, Config{Grace: time.Minute, Apps: []App{{
		Name: "app", Main: b.sh("echo >>" + runs + "; exec sleep 1000"), Health: check,
		Ready: func(context.Context) error { <-isReady; return nil },
	}}})
	pod.awaitHealth(Unhealthy)
	close(isReady)
	pod.up()
	pod.awaitState(StateRestarting)
	if err := pod.Restart(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	var text []byte
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool { text, _ = os.ReadFile(runs); return len(text) > 1 }) {
		t.Errorf("%d runs", len(text))
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if text, err := os.ReadFile(runs); err != nil || len(text) > 10 {
		t.Errorf("%d runs, %v", len(text), err)
	}
}

// An app that is unhealthy and never says that it is ready fails the start.
func TestAnAppThatIsNeverHealthyDoesNotWaitToBeReady(t *testing.T) {
	b := newFakes(t)
	check := checked("exit 1")
	check.Ready = true
	pod := start(t, Config{Grace: time.Minute, Apps: []App{{
		Name: "app", Main: b.sh("exec sleep 1000"), Health: check,
		Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}}})
	if code, err := pod.wait(); code != 1 || err == nil || err.Error() != `start app "app": unhealthy: exit code 1` {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// Where it is asked for, an app is ready with its first success, and never if it is unhealthy before.
func TestReadinessWaitsForHealth(t *testing.T) {
	b := newFakes(t)
	up := filepath.Join(t.TempDir(), "up")
	check := checked("test -e " + up)
	check.Ready, check.StartPeriod = true, time.Hour
	pod := start(t, Config{Grace: time.Minute, Apps: []App{{Name: "app", Main: b.sh("exec sleep 1000"), Health: check}}})
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool { h := pod.Status()[0].Health; return h != nil && h.Reason != "" }) {
		t.Fatal("no check has failed")
	}
	select {
	case <-pod.ready:
		t.Error("ready before the first success")
	default:
	}
	if err := os.WriteFile(up, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod.up()
	if got := pod.Status()[0].Health; got.State != Healthy {
		t.Errorf("ready, and %+v", got)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	never := checked("echo no; exit 1")
	never.Ready, never.Restart = true, true
	pod = start(t, Config{Grace: time.Minute, Apps: []App{{Name: "app", Main: b.sh("exec sleep 1000"), Health: never}}})
	if code, err := pod.wait(); code != 1 || err == nil || err.Error() != `start app "app": unhealthy: exit code 1: no` {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// hung is a container in which the start of a command hangs until released, and then succeeds.
type hung struct {
	*fake
	starts   atomic.Int32
	released chan struct{}
}

func (h *hung) Exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	h.starts.Add(1)
	<-h.released
	return h.fake.Exec(cmd, stdio)
}

// A check whose start hangs has failed at its limit, and is killed if it starts later; no other begins before.
func TestAHungStartOfACheckFailsIt(t *testing.T) {
	b := newFakes(t)
	inner, err := b.make("sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	c := &hung{fake: inner, released: make(chan struct{})}
	check := checked("sleep 1000")
	check.Timeout = 10 * time.Millisecond
	pod := podOf(t, App{Main: func() (spec.Container, error) { return c, nil }, Health: check})
	pod.awaitHealth(Unhealthy)
	if got := c.starts.Load(); got != 1 {
		t.Errorf("%d checks have begun", got)
	}
	close(c.released)
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool { return c.starts.Load() > 1 }) {
		t.Error("no check after the one that hung")
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}
