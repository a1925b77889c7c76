package supervisor

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A supervisor outlives the signals of its files, and stops the pod when the daemon asks.
func TestSignalsOfADaemonEndTheContext(t *testing.T) {
	for _, asks := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
		ctx, release := CatchSignals(t.Context())
		for _, s := range []syscall.Signal{unix.SIGPIPE, unix.SIGXFSZ, unix.SIGHUP, asks, asks} {
			if s == asks && ctx.Err() != nil {
				break
			}
			if err := unix.Kill(os.Getpid(), s); err != nil {
				t.Fatal(err)
			}
			if s != asks && ctx.Err() != nil {
				t.Errorf("%s ends the context", s)
			}
		}
		<-ctx.Done()
		release()
	}
}
