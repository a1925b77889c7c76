package pods

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"kurma.io/stager/launcher/events"
)

// recorded returns what has been recorded of apps, and that the pod was ready.
func (s *Store) recorded(t *testing.T) []string {
	t.Helper()
	reader, err := events.NewReader(s.Events(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var all []string
	for {
		e, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		code := "-"
		if e.Code != nil {
			code = fmt.Sprint(*e.Code)
		}
		if e.App != "" || e.Action == events.Ready {
			all = append(all, fmt.Sprintf("%s %s %s %s", e.App, e.Action, code, e.Reason))
		}
	}
}

// The events of apps are those in the file that the stager's image names, whatever the stager's log says.
func TestEventsOfAppsAreTheStagersData(t *testing.T) {
	const script = `echo 'time=2026-11-21T00:00:00Z level=INFO msg="app started" app=log' >&2
line() { echo "{\"time\":\"2026-11-21T00:00:00Z\",\"app\":\"$1\",\"state\":$2}" >>/changes; }
line a '"starting"'
line a '"running"'
line b '"ending","reason":"no program"'
` + isUp + `line a '"ending","exitCode":3,"reason":"oom-killed"'
line a '"restarting"'
health() { echo "{\"time\":\"2026-11-21T00:00:00Z\",\"app\":\"a\",\"health\":$1}" >>/changes; }
health '"unhealthy","reason":"exit code 1"'
health '"healthy"'
health '"odd"'
echo damaged >>/changes
line a '"exited"'
`
	fromFile := []string{"a started - ", "b failed - no program", " ready - ", "a exited 3 oom-killed", "a restarting - ", "a unhealthy - exit code 1", "a healthy - "}
	for file, want := range map[string][]string{"/changes": fromFile, "/none": {" ready - "}, "": {" ready - "}} {
		s := newStore(t)
		pod := s.newPod(t, "pod", "")
		pod.Plan.EventsFile = file
		pod.runScript(t, script)
		if exit, err := pod.Run(t.Context(), false, noted); err != nil || exit.Code != 0 {
			t.Errorf("%+v, %v", exit, err)
		}
		got := s.recorded(t)
		// The script may go on before it is seen to be ready.
		if i := slices.Index(got, " ready - "); i > 1 {
			got = slices.Insert(slices.Delete(got, i, i+1), min(2, len(got)-1), " ready - ")
		}
		if !slices.Equal(got, want) {
			t.Errorf("file %q: %q, want %q", file, got, want)
		}
	}
}
