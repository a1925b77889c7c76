package main

import (
	"context"
	"errors"
	"math"

	"github.com/spf13/cobra"
)

// imageRmCommand is `image rm IMAGE…`.
func imageRmCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE…",
		Short: "remove images that no pod and no network uses",
		Long: `rm removes images, and the layers that no other image needs. An image that a live pod, a network or another
image uses is an error. While images are imported, layers stay; the end of the last import removes them.`,
		Args:              wants(1, -1, "IMAGE…"),
		ValidArgsFunction: c.completeImages(math.MaxInt, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.removeImages(cmd.Context(), args) },
	}
}

// removeImages removes images; one that cannot be removed prevents no other.
func (c *cli) removeImages(ctx context.Context, refs []string) error {
	var errs []error
	for _, ref := range refs {
		errs = append(errs, c.daemon.RemoveImage(ctx, ref))
	}
	return errors.Join(errs...)
}
