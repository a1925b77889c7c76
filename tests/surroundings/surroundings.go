// Package surroundings gives a test program, and the processes that it starts,
// the surroundings of a login shell, whatever it was started by: nohup and
// shell scripts leave signals ignored, hardened machines mask modes.
package surroundings

import (
	"os"
	"os/signal"

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
