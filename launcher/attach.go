package main

import (
	"os"

	"kurma.io/stager/names"

	"github.com/spf13/cobra"
)

// attachCommand is `attach`.
func attachCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "attach POD [APP]",
		Short:             "connect to an app's input and output",
		ValidArgsFunction: c.completePods(1, true),
		Annotations:       map[string]string{exitStatusAnnotation: "The app's."},
		RunE:              func(_ *cobra.Command, args []string) error { return c.attach(args) },
	}
}

// attach passes the app's output on, and input to it if its stdin is
// open, until the app ends. Its exit status is the app's.
func (c *cli) attach(args []string) error {
	pod, rest, err := c.findPod("attach", args)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return usageError{"attach: want POD [APP]"}
	}
	a, err := app(pod, rest)
	if err != nil {
		return err
	}
	if !c.hasKeyboard() {
		return pod.Become(names.Attach, a.Name)
	}
	if !hasTerminal(pod, a.Name) {
		c.hint("ctrl-c leaves the app running")
		return c.become(pod, names.Attach, a.Name)
	}
	code, left, err := c.callByKeyboard(pod, "leaves the app running", [2]*os.File{os.Stdout, os.Stderr}, nil, names.Attach, a.Name)
	if err == nil && code != 0 && !left {
		err = exitError{code}
	}
	return err
}
