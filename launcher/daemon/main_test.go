package daemon_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// TestMain has the test binary be the monitor of a pod, if Programs.Monitor of open has started it.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "monitor" {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		check(open(os.Args[2]).Monitor(ctx, os.Args[3]))
		return
	}
	surroundings.Settle()
	os.Exit(m.Run())
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("%v; the example needs root, STAGER_ACI, STAGER_BIN and STAGER_IMAGES, see make test-e2e", err))
	}
}
