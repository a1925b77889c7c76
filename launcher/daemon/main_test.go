package daemon_test

import (
	"context"
	"flag"
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
	flag.Parse()
	if testing.Short() { // the example needs root and what make has built
		check(flag.Set("test.skip", "^Example$"))
	}
	os.Exit(m.Run())
}

// needVariables ends the program unless the variables of the example are set.
func needVariables() {
	for _, name := range []string{"STAGER_ACI", "STAGER_BIN", "STAGER_IMAGES"} {
		if os.Getenv(name) == "" {
			fmt.Fprintln(os.Stderr, name+" is not set: make test-e2e RUN='^Example$$' sets what the example needs")
			os.Exit(1)
		}
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("%v; the example needs root", err))
	}
}
