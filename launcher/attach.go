package main

import (
	"context"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// attachCommand is `attach`.
func attachCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "attach POD [APP]",
		Short:             "connect to an app's input and output",
		ValidArgsFunction: c.completePods(1, true),
		Annotations:       map[string]string{exitStatusAnnotation: "The app's."},
		RunE:              func(cmd *cobra.Command, args []string) error { return c.attach(cmd.Context(), args) },
	}
}

func (c *cli) attach(ctx context.Context, args []string) error {
	pod, a, err := c.findApp("attach", args)
	if err != nil {
		return err
	}
	call := func(ctx context.Context, caller daemon.Caller) (int, error) {
		return c.daemon.Attach(ctx, pod, a.Name, caller)
	}
	if c.hasKeyboard() && a.TTY {
		code, left, err := c.callByKeyboard(ctx, "leaves the app running", call)
		if left { // the call-in was killed
			return nil
		}
		return statusOf(code, err)
	}
	if c.hasKeyboard() {
		c.hint("ctrl-c leaves the app running")
	}
	return statusOf(c.makeCall(ctx, c.stdin, call))
}
