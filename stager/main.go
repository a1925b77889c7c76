// Command stager is the reference stager. A Kurma daemon starts it in a container, in which it
// builds, runs and supervises the apps of a pod (Kurma Stager Specification). The same program is
// every executable that the specification requires; the name by which it is called selects one.
//
// Package boot takes a pod from its manifest to its end. Read boot.go there first.
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
	"kurma.io/stager/callins/plain"
	"kurma.io/stager/internal/version"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
)

func main() {
	beContainer()
	os.Exit(callins.ExitCode(dispatch(os.Args), os.Stderr))
}

// dispatch selects what the program does: it is the supervisor if the daemon has started it as the stager (package
// pid1), else the call-in named by the base name of argv[0] or by the first argument. With --version it prints
// its version.
func dispatch(args []string) error {
	ctx := context.Background()
	init, err := pid1.Take()
	if err != nil {
		return fmt.Errorf("%s: %w", names.Program, err)
	}
	if init != nil {
		return supervise(ctx, init)
	}
	if len(args) == 0 {
		return errors.New(names.Program + ": no argv[0]")
	}
	known := callIns()
	if callIn, ok := known[filepath.Base(args[0])]; ok {
		return callIn(ctx, plain.Streams(), args[1:])
	}
	if len(args) == 1 {
		return fmt.Errorf("%s: called as %q, want %[1]s or a call-in: %s", names.Program, args[0], commandNames())
	}
	if callIn, ok := known[args[1]]; ok {
		return callIn(ctx, plain.Streams(), args[2:])
	}
	if args[1] == "--version" && len(args) == 2 {
		_, err := fmt.Fprintln(os.Stdout, names.Program, version.String())
		return err
	}
	return fmt.Errorf("%s: unknown call-in %q, want one of %s", names.Program, args[1], commandNames())
}

func commandNames() string {
	return strings.Join(slices.Sorted(maps.Keys(callIns())), ", ")
}
