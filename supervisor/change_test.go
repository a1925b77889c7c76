package supervisor_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
)

// Each change of an app's state is reported, in order, with how a run has ended.
func TestChangesOfAnAppAreReported(t *testing.T) {
	b := newFakes(t)
	count := filepath.Join(t.TempDir(), "count")
	again := App{Name: "app", Main: b.sh(fmt.Sprintf("echo run >>%s; test $(wc -l <%s) = 2 || exit 7", count, count))}
	missing := App{Name: "app", Main: func() (spec.Container, error) { return nil, errors.New("no such program") }}
	directory := App{Name: "app", Main: func() (spec.Container, error) {
		return nil, fmt.Errorf("start: %w", &spec.ExecError{Path: "/", Errno: syscall.EACCES})
	}}
	for _, tt := range []struct {
		app  App
		want string
	}{
		{directory, "starting ending:start: exec /: permission denied:not-executed:126 exited"},
		{again, "starting running ending:7 restarting starting running ending:0 exited"},
		{missing, "starting ending:no such program exited"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			var mu sync.Mutex
			var got []string
			report := func(c Change) {
				mu.Lock()
				defer mu.Unlock()
				text := string(c.State)
				if c.Code != nil {
					text += fmt.Sprintf(":%d", *c.Code)
				}
				if c.Reason != "" {
					text += ":" + c.Reason
				}
				if c.NotExecuted != 0 {
					text += fmt.Sprintf(":not-executed:%d", c.NotExecuted)
				}
				if c.App != "app" || c.Time.IsZero() {
					t.Errorf("%+v", c)
				}
				got = append(got, text)
			}
			pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Restart: spec.RestartPolicy{AfterFailure: true}, Apps: []App{tt.app}, Changed: report})
			_, _ = pod.wait()
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("%s, want %s", text, tt.want)
			}
		})
	}
}
