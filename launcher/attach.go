package main

import (
	"context"

	"kurma.io/stager/names"
)

// runAttach is `attach`: the app's output and, where it has an open stdin, its
// input, until it ends; then its exit status.
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
