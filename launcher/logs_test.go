package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"
)

// The lock of a log that is written in a virtual machine is held there: the launcher finds it free, though the app
// runs, and leaves the log to the call-in.
func TestLogsThatAreLockedElsewhereAreTheCallIns(t *testing.T) {
	h := newHost(t)
	h.run("run", "--detach", "--name", "elsewhere", "example.com/one")
	for args, want := range map[string]string{
		"logs --follow elsewhere": "logs --follow one\n",
		"logs elsewhere":          "words\n",
	} {
		if out := h.run(strings.Fields(args)...); out != want {
			t.Errorf("%s: %q, want %q", args, out, want)
		}
		if out := h.onTerminal(strings.Fields(args)...); out != want {
			t.Errorf("%s on a terminal: %q, want %q", args, out, want)
		}
	}
	lines := filepath.Join(h.dir, "pods", h.ps()[0].UUID, "root/lines")
	if err := os.WriteFile(lines, make([]byte, 1<<20), 0o644); err != nil { // more than a pipe has room for
		t.Fatal(err)
	}
	full := h.command("logs", "--follow", "--raw", "elsewhere")
	full.Stdout = must(os.OpenFile("/dev/full", os.O_WRONLY, 0))
	if err := full.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(surroundings.Patience, func() { _ = full.Process.Kill() }).Stop()
	if _ = full.Wait(); full.ProcessState.ExitCode() != 1 {
		t.Errorf("the disk is full: %s", full.ProcessState)
	}
	h.run("stop", "elsewhere")
	if out := h.run("logs", "--follow", "elsewhere"); out != "words\n" {
		t.Errorf("after the end: %q", out)
	}
	h.run("rm", "elsewhere")
}
