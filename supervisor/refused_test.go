package supervisor_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
)

// Only a bug makes a wrong status. It is logged, and the pod ends all the same.
func TestARefusedMoveDoesNotWedgeThePod(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Grace: time.Minute, Log: slog.New(slog.NewTextHandler(out, nil)), Apps: []App{
		{Name: "app", Main: b.sh("exec sleep 1000")},
	}}).up()
	pod.ForceState("app", StateExited)
	if _, err := pod.Exec("app", script("exit 0"), spec.Stdio{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if !strings.Contains(out.String(), RefusedMove) {
		t.Errorf("log %q", out)
	}
}

func TestProcessesAreTheMainProcessAndSessions(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "exit 3")
	app.Name = "app"
	ended := make(chan struct{})
	app.Ended = func() { close(ended) }
	gate := make(chan struct{})
	pod := start(t, Config{Grace: time.Minute, Apps: []App{app, {
		Name: "other", PreStart: func() (spec.Container, error) {
			<-gate
			return b.sh("exit 0")()
		}, Main: b.sh("exec sleep 1000"),
	}}})
	if _, err := pod.Processes("other"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("before the main process: %v", err)
	}
	close(gate)
	pod.up()
	main := pod.Status()[0].PID
	if got, err := pod.Processes("app"); err != nil || !slices.Equal(got, []int{main}) {
		t.Errorf("%v, %v, want %d", got, err, main)
	}
	session := run1(t, pod, "exec sleep 1000", spec.Stdio{})
	got, err := pod.Processes("app")
	if want := []int{main, session.PID()}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := pod.Processes("none"); !errors.Is(err, ErrNoApp) {
		t.Errorf("no app: %v", err)
	}
	open()
	<-ended
	if got, err := pod.Processes("app"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v, %v", got, err)
	}
}
