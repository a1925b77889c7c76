package reap

import (
	"os"
	"runtime"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

// init keeps the tests' starts off the program's first thread, as Spawn wants it.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // later the scheduler may have changed the thread

func TestMain(m *testing.M) {
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}
