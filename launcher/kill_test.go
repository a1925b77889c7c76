package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

// An app that has ended since its state was read prevents no signal to another, and is an error alone.
func TestKillSignalsTheAppsThatRun(t *testing.T) {
	h := newPod(t)
	other := exec.Command("sleep", "1000")
	if err := surroundings.Start(other); err != nil {
		t.Fatal(err)
	}
	const gone = 1 << 30 // larger than every PID
	status := filepath.Join(h.dir, "pods", h.ps()[0].UUID, "root/status")
	set := func(two int) {
		text := fmt.Sprintf(`{"one":{"pid":%d},"two":{"pid":%d},"three":{"pid":%d}}`, gone, two, gone)
		if err := os.WriteFile(status, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	set(other.Process.Pid)
	if r := h.try("kill", "--signal", "TERM", "p"); r != (result{}) {
		t.Fatalf("%+v", r)
	}
	if err := other.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the app that runs: %v", err)
	}
	set(gone)
	if r := h.try("kill", "p"); r.code != 1 || !strings.Contains(r.stderr, `app "one" has ended`) {
		t.Errorf("no app runs: %+v", r)
	}
	// No hint at a restart, which would stop the other apps.
	if r := h.try("kill", "p", "one"); r != (result{code: 1, stderr: "launcher: app \"one\" has ended\n"}) {
		t.Errorf("the app does not run: %+v", r)
	}
}
