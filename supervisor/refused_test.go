package supervisor_test

import (
	"errors"
	"log/slog"
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
