package supervisor_test

import (
	"context"
	"errors"
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

// awaitState waits until the pod's first app has the state.
func (r *running) awaitState(want State) {
	r.t.Helper()
	var got AppStatus
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool { got = r.Status()[0]; return got.State == want }) {
		r.t.Fatalf("%+v, want state %s", got, want)
	}
}

func TestAnAppIsRestartedOnRequest(t *testing.T) {
	t.Parallel() // it waits for a limit
	for _, test := range []struct {
		name, script string
		state        State // in which the app is restarted
		restart      spec.RestartPolicy
		grace        time.Duration
		last         Exit
	}{
		{"runs", "echo run; exec sleep 1000", StateRunning, spec.RestartPolicy{}, time.Minute, Exit{143, "terminated"}},
		{"ignores the signal", "trap '' TERM; echo run; while :; do sleep 1000; done", StateRunning, spec.RestartPolicy{}, time.Millisecond, Exit{137, "killed"}},
		{"has ended", "echo run; test -e $again && exec sleep 1000; >$again; exit 4", StateExited, spec.RestartPolicy{}, time.Minute, Exit{Code: 4}},
		{"is in its back-off", "echo run; test -e $again && exec sleep 1000; test $(wc -l <$count) -lt 8 || >$again; exit 4", StateRestarting, spec.RestartPolicy{AfterFailure: true}, time.Minute, Exit{Code: 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newFakes(t)
			dir := t.TempDir()
			out := newLog()
			var ended, again atomic.Int32
			script := fmt.Sprintf("again=%[1]s/again; count=%[1]s/count; echo >>$count; %s", dir, test.script)
			pod := start(t, Config{Restart: test.restart, Grace: test.grace, Apps: []App{{
				Name: "app", Main: b.sh(script), Stdout: out,
				Ended: func() { ended.Add(1) }, Again: func() error { again.Add(1); return nil },
			}}}).up()
			if test.state == StateRestarting {
				if !poll.Until(60*time.Second, time.Millisecond, func() bool { _, err := os.Stat(filepath.Join(dir, "again")); return err == nil }) {
					t.Fatal("the app was not restarted by its policy")
				}
			}
			pod.awaitState(test.state)
			out.await("run")
			before := pod.Status()[0]
			patience, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than that back-off
			defer cancel()
			if err := pod.Restart(patience, "app"); err != nil {
				t.Fatal(err)
			}
			restarts := before.Restarts + 1
			if test.state == StateRestarting {
				restarts = before.Restarts // this run is counted
			}
			got := pod.Status()[0]
			if got.State != StateRunning || got.PID == before.PID || got.Restarts != restarts || got.Exit != nil || got.Last == nil || *got.Last != test.last {
				t.Errorf("%+v, last %+v, before %+v", got, got.Last, before)
			}
			if code, err := pod.stopped(); code != 0 || err != nil {
				t.Errorf("Run() = %d, %v", code, err)
			}
			want := int32(0)
			if test.state == StateExited {
				want = 1
			}
			if ended.Load() != want+1 || again.Load() != want {
				t.Errorf("ended %d times, again %d times, want %d and %d", ended.Load(), again.Load(), want+1, want)
			}
		})
	}
}

// A pod whose apps have all ended but one that was started again goes on, and ends with it.
func TestAnAppThatIsStartedAgainCountsForTheExitPolicy(t *testing.T) {
	b := newFakes(t)
	dir := t.TempDir()
	other, open := gated(t, b, "exit 0")
	other.Name = "other"
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Grace: time.Minute, Apps: []App{
		{Name: "app", Main: b.sh(fmt.Sprintf("cd %s; test -e again || { >again; exit 7; }; until test -e end; do sleep 0.01; done; exit 5", dir))}, other,
	}}).up()
	pod.awaitState(StateExited)
	if err := pod.Restart(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	open()
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool { return pod.Status()[1].State == StateExited }) {
		t.Fatal("the other app has not ended")
	}
	if got := pod.Status()[0]; got.State != StateRunning {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, err := pod.wait(); code != 5 || err != nil {
		t.Errorf("Run() = %d, %v, want the exit code of the app's last run", code, err)
	}
}

func TestRestartsAreRefused(t *testing.T) {
	b := newFakes(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.Symlink("/bin/true", program); err != nil {
		t.Fatal(err)
	}
	closed := errors.New("its sockets are closed")
	pod := start(t, Config{Grace: time.Minute, Apps: []App{
		{Name: "gone", Main: b.run(program)},
		{Name: "closed", Main: b.sh("exit 0"), Again: func() error { return closed }},
		{Name: "runs", Main: b.sh("exec sleep 1000")},
	}}).up()
	pod.awaitState(StateExited)
	if !poll.Until(surroundings.Patience, time.Millisecond, func() bool { return pod.Status()[1].State == StateExited }) {
		t.Fatal("the app has not ended")
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an app that was not started can be restarted again
		if err := pod.Restart(t.Context(), "gone"); err == nil || !strings.Contains(err.Error(), `app "gone": `) {
			t.Errorf("an app whose program is missing: %v", err)
		}
		if err := pod.Restart(t.Context(), "closed"); !errors.Is(err, closed) {
			t.Errorf("an app that cannot be started again: %v", err)
		}
	}
	if err := pod.Restart(t.Context(), "none"); !errors.Is(err, ErrNoApp) {
		t.Errorf("an app that the pod does not have: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pod.Restart(over, "closed"); err == nil {
		t.Error("a caller that has gone: no error")
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	for _, app := range []string{"gone", "runs"} {
		if err := pod.Restart(t.Context(), app); err == nil || !strings.Contains(err.Error(), "the pod stops") {
			t.Errorf("app %s of a pod that has ended: %v", app, err)
		}
	}
}

// Restarts at once, of apps that run and that end by themselves, all return, and so does the pod's end meanwhile.
func TestManyRestartsAtOnce(t *testing.T) {
	b := newFakes(t)
	pod := start(t, Config{Grace: time.Second, Apps: []App{
		{Name: "runs", Main: b.sh("exec sleep 1000")}, {Name: "ends", Main: b.sh("exit 3")},
	}}).up()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := pod.Restart(t.Context(), []string{"runs", "ends"}[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := pod.Status()[0]; got.State != StateRunning || got.Restarts == 0 {
		t.Errorf("%+v", got)
	}
	for i := range 20 {
		all.Go(func() { _ = pod.Restart(t.Context(), []string{"runs", "ends"}[i%2]) }) // refused, or before the stop
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	all.Wait()
}

// Restarts of an app that cannot be started again are all refused, however many come at once.
func TestManyRestartsAtOnceAreRefused(t *testing.T) {
	b := newFakes(t)
	closed := errors.New("its sockets are closed")
	pod := start(t, Config{Apps: []App{
		{Name: "closed", Main: b.sh("exit 0"), Again: func() error { return closed }},
		{Name: "runs", Main: b.sh("exec sleep 1000")},
	}}).up()
	pod.awaitState(StateExited)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 200 {
				if err := pod.Restart(t.Context(), "closed"); !errors.Is(err, closed) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// The end of an app that is not ready yet would fail the pod's start.
func TestAnAppThatIsNotReadyIsNotRestarted(t *testing.T) {
	b := newFakes(t)
	ready := make(chan struct{})
	pod := start(t, Config{Apps: []App{{Name: "a", Main: b.sh("exec sleep 1000"), Ready: func(ctx context.Context) error {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}}})
	pod.awaitState(StateRunning)
	if err := pod.Restart(t.Context(), "a"); err == nil || !strings.HasSuffix(err.Error(), `app "a": not ready yet`) {
		t.Error(err)
	}
	close(ready)
	pod.up()
	if err := pod.Restart(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}
