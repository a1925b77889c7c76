package main

import (
	"context"

	"kurma.io/stager/names"
)

// runAttach is `attach`: it passes the app's output on, and input to it if its stdin is
// open, until the app ends. Its exit status is the app's.
func runAttach(_ context.Context, c *cli, args []string) error {
	rest, err := c.parse("attach", args, nil)
	if err != nil {
		return err
	}
	pod, rest, err := c.findPod("attach", rest)
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
	return c.become(pod, names.Attach, a.Name)
}
