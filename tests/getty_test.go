package tests

import (
	"bytes"
	"os"
	"testing"
	"time"

	"kurma.io/stager/tests/clause"
)

// A getty on a virtual terminal of the machine works in a privileged app, which has the device: its
// prompt is on the terminal's screen (vcs(4)).
func TestGettyWorksOnATerminalOfTheMachine(t *testing.T) {
	clause.Covers(t, "C-ISO-02")
	m := newMachine(t)
	getty := command("getty", "/bin/getty", "-i", "38400", "tty8", "linux")
	getty.App.Isolators = []any{isolator("os/linux/privileged", true)}
	p := m.up("getty", podOf(getty))
	var screen []byte
	deadline := time.Now().Add(patience)
	for !bytes.Contains(screen, []byte("login:")) {
		if time.Now().After(deadline) {
			t.Fatalf("no prompt on tty8, its screen is %q; the app's log:\n%s", bytes.TrimSpace(screen), p.logs("getty"))
		}
		screen, _ = os.ReadFile("/dev/vcs8") // it is there once the terminal has been opened
	}
	p.stop()
}
