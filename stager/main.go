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
	"kurma.io/stager/container"
	"kurma.io/stager/names"
)

func main() {
	container.Init()
	os.Exit(exitCode(dispatch(os.Args)))
}

// commands are by the base name of argv[0], or by the first argument of
// "stager COMMAND".
var commands = map[string]func(context.Context, []string) error{ //nolint:gochecknoglobals // a table that is only read
	names.Status: func(ctx context.Context, args []string) error { return callins.Status(ctx, streams(), args) },
	names.Logs: func(ctx context.Context, args []string) error {
		if err := callins.Logs(ctx, names.LogDir, args, os.Stdout, os.Stderr); err != nil {
			return fmt.Errorf("%s: %w", names.Logs, err)
		}
		return nil
	},
	names.Run:    func(ctx context.Context, args []string) error { return callins.Run(ctx, streams(), args) },
	names.Attach: func(ctx context.Context, args []string) error { return callins.Attach(ctx, streams(), args) },
}

func dispatch(args []string) error {
	ctx := context.Background()
	if mark := os.Getenv(waiterVariable); mark != "" {
		return supervise(ctx, mark)
	}
	if len(args) == 0 {
		return errors.New(names.Program + ": no argv[0]")
	}
	if command, ok := commands[filepath.Base(args[0])]; ok {
		return command(ctx, args[1:])
	}
	if len(args) == 1 {
		// A stager proper never comes here, see waiter.c.
		return fmt.Errorf("%s: called as %q, which is neither %[1]s nor a command of %s", names.Program, args[0], commandNames())
	}
	if command, ok := commands[args[1]]; ok {
		return command(ctx, args[2:])
	}
	return fmt.Errorf("%s: unknown command %q; there is %s", names.Program, args[1], commandNames())
}

func commandNames() string {
	return strings.Join(slices.Sorted(maps.Keys(commands)), ", ")
}

func streams() callins.Streams {
	return callins.Streams{
		Socket: names.ControlSocket,
		Stdin:  os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Settings: callins.SettingsDescriptor,
	}
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
