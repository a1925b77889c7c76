package supervisor

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// arrows are the moves of the diagram of State.
var arrows = map[State][]State{
	StateWaiting:    {StateStarting},
	StateStarting:   {StateRunning, StateEnding},
	StateRunning:    {StateEnding},
	StateEnding:     {StateRestarting, StateExited},
	StateRestarting: {StateStarting, StateExited},
	StateExited:     nil,
}

// The test tries every move between two states, and to and from a name that is not a state.
func TestMovesThatTheDiagramForbidsAreRefused(t *testing.T) {
	states := []State{StateWaiting, StateStarting, StateRunning, StateEnding, StateRestarting, StateExited, "none"}
	for _, from := range states {
		for _, to := range states {
			var log bytes.Buffer
			pod := NewPod(Config{Apps: []App{{Name: "app"}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			a := pod.apps[0]
			before := AppStatus{Name: "app", State: from, PID: 7, Exit: &Exit{Code: 3}, Error: "why", Restarts: 2}
			a.status = before
			a.transition(to, func(s *AppStatus) { s.Restarts++ })
			got := a.snapshot()
			if slices.Contains(arrows[from], to) {
				if got.State != to || got.Restarts != 3 || got.PID != 0 || log.Len() != 0 {
					t.Errorf("%s to %s: %+v, log %q", from, to, got, &log)
				}
				continue
			}
			if got.State != from || got.Restarts != 2 || got.PID != 7 || *got.Exit != *before.Exit || got.Error != "why" {
				t.Errorf("%s to %s changed the status: %+v", from, to, got)
			}
			if text := log.String(); !strings.Contains(text, refusedMove) || !strings.Contains(text, "from="+string(from)+" to="+string(to)) {
				t.Errorf("%s to %s: log %q", from, to, text)
			}
		}
	}
}

// Only a bug makes a wrong status. It is logged, and the pod ends all the same.
func TestARefusedMoveDoesNotWedgeThePod(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Grace: time.Minute, Log: slog.New(slog.NewTextHandler(out, nil)), Apps: []App{
		{Name: "app", Main: b.sh("exec sleep 1000")},
	}}).up()
	a := pod.apps[0]
	a.mu.Lock()
	a.status.State = StateExited
	a.mu.Unlock()
	if _, err := pod.Exec("app", script("exit 0"), Stdio{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if !strings.Contains(out.String(), refusedMove) {
		t.Errorf("log %q", out)
	}
}

func TestProcesses(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "exit 3")
	app.Name = "app"
	ended := make(chan struct{})
	app.Ended = func() { close(ended) }
	gate := make(chan struct{})
	pod := start(t, Config{Grace: time.Minute, Apps: []App{app, {
		Name: "other", PreStart: func() (Container, error) {
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
	session := run1(t, pod, "exec sleep 1000", Stdio{})
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
