package main

import (
	"context"
	"errors"
	"math"

	"github.com/spf13/cobra"
)

// stopCommand is `stop`.
func stopCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "stop POD…",
		Short:             "stop pods",
		Long:              "stop returns when the pods have ended. They stay in ps --all, with their logs, until rm or gc.",
		Args:              wants(1, -1, "a POD"),
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.stop(cmd.Context(), args) },
	}
}

// stop returns when the pods have ended.
func (c *cli) stop(ctx context.Context, refs []string) error {
	store, err := c.pods()
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		pod, err := store.Find(ref)
		if err == nil {
			err = store.Stop(ctx, pod)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
