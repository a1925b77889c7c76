// Package surroundings gives a test program, and the processes that it starts,
// the surroundings of a login shell, whatever it was started by: nohup and
// shell scripts leave signals ignored, hardened machines mask modes. It also bounds
// what a test waits for.
package surroundings

import (
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Settle sets the umask to 022 and has no signal ignored in processes that are started
// from now on. TestMain calls it before it runs the tests; where what is tested
// has to do with umask or ignored signals, the test sets them after that.
func Settle() {
	unix.Umask(0o022)
	for sig := unix.Signal(1); sig < 32; sig++ {
		if signal.Ignored(sig) {
			// One that is caught has its default action again after execve(2).
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// Patience bounds every wait of a test: long past it something hangs.
const Patience = 60 * time.Second

// Eventually waits until a condition holds that nothing reports, and reports whether it
// does: after Patience the test is marked as failed. what says what the test waits
// for. It may be called by any goroutine.
func Eventually(t testing.TB, what string, condition func() bool) bool {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 100 * time.Microsecond; !condition(); pause = min(2*pause, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s: not within %s", what, Patience)
			return false
		}
		time.Sleep(pause)
	}
	return true
}
