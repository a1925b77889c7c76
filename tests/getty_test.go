package tests

import (
	"bytes"
	"os"
	"testing"
	"time"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// A getty on a virtual terminal of the machine works in a privileged app, which has the device: its
// prompt is on the terminal's screen (vcs(4)).
func TestGettyWorksOnATerminalOfTheMachine(t *testing.T) {
	clause.Covers(t, "C-ISO-02")
	m := suite.NewMachine(t)
	getty := suite.Command("getty", "/bin/getty", "-i", "38400", "tty8", "linux")
	getty.App.Isolators = []any{harness.Isolator("os/linux/privileged", true)}
	p := m.Up("getty", harness.PodOf(getty))
	var screen []byte
	deadline := time.Now().Add(harness.Patience)
	for !bytes.Contains(screen, []byte("login:")) {
		if time.Now().After(deadline) {
			t.Fatalf("no prompt on tty8, its screen is %q; the app's log:\n%s", bytes.TrimSpace(screen), p.Logs("getty"))
		}
		screen, _ = os.ReadFile("/dev/vcs8") // it is there once the terminal has been opened
	}
	p.Stop()
}
