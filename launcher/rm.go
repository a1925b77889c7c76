package main

import (
	"context"
	"errors"
	"math"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// rmCommand is `rm`.
func rmCommand(c *cli) *cobra.Command {
	force, all := false, false
	cmd := &cobra.Command{
		Use:               "rm POD… | --all",
		Short:             "delete ended pods with their logs and volumes",
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return usageError{"rm: want a POD, or --all"}
			case all:
				return c.daemon.RemovePods(cmd.Context(), force)
			}
			return c.removePods(cmd.Context(), args, force)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "delete all pods that have ended; with --force, all pods")
	cmd.Flags().BoolVarP(&force, "force", "f", false,
		"stop a pod that is still alive first, kill one that is damaged, and delete one that "+
			"its networks' plugins do not disconnect")
	return cmd
}

// removePods deletes pods; one that cannot be deleted prevents no other.
func (c *cli) removePods(ctx context.Context, refs []string, force bool) error {
	var errs []error
	for _, ref := range refs {
		pod, err := c.daemon.FindPod(ref)
		if err == nil || force && errors.Is(err, pods.ErrDamaged) {
			err = c.daemon.RemovePod(ctx, pod, force)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
