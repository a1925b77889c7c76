// Command stager is the reference stager: it is launched by a Kurma daemon in
// a container of its own, and builds, runs and supervises the apps of a pod in
// there (Kurma Stager Specification). The same program is every executable
// that the specification asks for; the name it is called by says which.
//
// boot.go is the way of a pod from its manifest to its running apps, and the
// first file to read.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kurma.io/stager/callins"
	"kurma.io/stager/names"
)

func main() {
	beContainer()
	os.Exit(exitCode(dispatch(os.Args)))
}

// dispatch finds the program's part: the supervisor by its variable, a call-in by
// the base name of argv[0] or by the first argument.
func dispatch(args []string) error {
	ctx := context.Background()
	if os.Getenv(names.SupervisorVariable) != "" {
		return supervise(ctx)
	}
	if len(args) == 0 {
		return errors.New(names.Program + ": no argv[0]")
	}
	known := callIns()
	if callIn, ok := known[filepath.Base(args[0])]; ok {
		return callIn(ctx, streams(), args[1:])
	}
	if len(args) == 1 {
		// A stager proper never comes here, see waiter/waiter.c.
		return fmt.Errorf("%s: called as %q, which is neither %[1]s nor a command of %s", names.Program, args[0], commandNames())
	}
	if callIn, ok := known[args[1]]; ok {
		return callIn(ctx, streams(), args[2:])
	}
	return fmt.Errorf("%s: unknown command %q; there is %s", names.Program, args[1], commandNames())
}

func commandNames() string {
	return strings.Join(slices.Sorted(maps.Keys(callIns())), ", ")
}

// exitCode says what went wrong, if anything, and how to end.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	code := 1
	var exit *callins.ExitError
	if errors.As(err, &exit) {
		code, err = exit.Code, exit.Err
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}
