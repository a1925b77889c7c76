// Command print prints names for the Makefile and for scripts.
//
//	print         all of them, as assignments for a shell: PROGRAM='stager' …
//	print NAME    the value of one of them: print PROGRAM
package main

import (
	"fmt"
	"io"
	"os"

	"kurma.io/stager/names"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "print:", err)
		os.Exit(1)
	}
}

type name struct{ name, value string }

func all() []name {
	return []name{
		{"PROGRAM", names.Program},
		{"IMAGE", names.Image},
		{"EXEC", names.Exec},
		{"RUN_DIR", names.RunDir},
		{"LOG_DIR", names.LogDir},
		{"CONTROL_SOCKET", names.ControlSocket},
		{"CALL_IN_DIR", names.CallInDir},
	}
}

func run(out io.Writer, args []string) error {
	if len(args) == 0 {
		for _, n := range all() {
			if _, err := fmt.Fprintf(out, "%s='%s'\n", n.name, n.value); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range all() {
		if len(args) == 1 && n.name == args[0] {
			_, err := fmt.Fprintln(out, n.value)
			return err
		}
	}
	return fmt.Errorf("%q is not one name", args)
}
