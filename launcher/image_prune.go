package main

import (
	"context"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// imagePruneCommand is `image prune`.
func imagePruneCommand(c *cli) *cobra.Command {
	var o daemon.PruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "remove images that later imports have replaced",
		Long: `prune removes the images that a later import of the same name and labels, signed by the same key, has
replaced, unless a live pod, a network or another image uses them. It also removes layers that no image needs.
With --all it removes every image that no live pod, network or remaining image uses, except the stager's.
It prints the IDs.`,
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.pruneImages(cmd.Context(), o) },
	}
	cmd.Flags().BoolVarP(&o.All, "all", "a", false, "remove all images that no live pod and no network uses")
	cmd.Flags().BoolVar(&o.Dry, "dry-run", false, "print the images that would be removed, and remove none")
	return cmd
}

// pruneImages prints the images that were removed, also if one could not be.
func (c *cli) pruneImages(ctx context.Context, o daemon.PruneOptions) error {
	pruned, err := c.daemon.PruneImages(ctx, o)
	for _, image := range pruned {
		if err := c.printOne(image, image.ID); err != nil {
			return err
		}
	}
	return err
}
