package supervisor

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// arrows are the moves of the diagram of State.
var arrows = map[State][]State{
	StateWaiting:    {StateStarting},
	StateStarting:   {StateRunning, StateEnding},
	StateRunning:    {StateEnding},
	StateEnding:     {StateRestarting, StateExited},
	StateRestarting: {StateStarting, StateExited},
	StateExited:     {StateRestarting},
}

// The test tries every move between two states, and to and from a name that is not a state.
func TestMovesThatTheDiagramForbidsAreRefused(t *testing.T) {
	states := []State{StateWaiting, StateStarting, StateRunning, StateEnding, StateRestarting, StateExited, "none"}
	for _, from := range states {
		for _, to := range states {
			var log bytes.Buffer
			pod := New(Config{Apps: []App{{Name: "app"}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
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
