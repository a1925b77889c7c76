package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"kurma.io/stager/launcher/pods"
)

// cli is what a command works with.
type cli struct {
	config         config
	stdin          *os.File
	stdout, stderr io.Writer
	json           bool // --json, for a command that prints
}

// usageError is an error in the command line: exit status 2.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// exitError ends the program with the exit status of a call-in or a stager, and without a
// message.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// exitStatus is the one place where an error becomes text and an exit status.
func exitStatus(err error) int {
	var usage usageError
	var exit exitError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "launcher:", oneLine(err))
		return 2
	}
	fmt.Fprintln(os.Stderr, "launcher:", oneLine(err))
	return 1
}

// parse reads a command's flags: --json and those that declare adds, which may be nil. It
// returns the arguments after them.
func (c *cli) parse(name string, args []string, declare func(*flag.FlagSet)) ([]string, error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&c.json, "json", c.json, "print JSON")
	if declare != nil {
		declare(flags)
	}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		helpCommand(c.stdout, name)
		flags.SetOutput(c.stdout)
		flags.PrintDefaults()
		return nil, err
	}
	if err != nil {
		return nil, usageError{name + ": " + err.Error()}
	}
	return flags.Args(), nil
}

func (c *cli) pods() (*pods.Store, error) {
	return pods.Open(c.config.PodsDirectory, c.config.ParentCgroupName)
}

func (c *cli) printJSON(v any) error {
	out := json.NewEncoder(c.stdout)
	out.SetEscapeHTML(false)
	return out.Encode(v)
}
