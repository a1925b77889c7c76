package main

import (
	"errors"
	"fmt"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/signing"

	"github.com/spf13/cobra"
)

// prunedImage is what `image prune --json` prints of an image.
type prunedImage struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes
}

// imagePruneCommand is `image prune`.
func imagePruneCommand(c *cli) *cobra.Command {
	all, dry := false, false
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "remove images that later imports have replaced",
		Long: `prune removes the images that a later import of the same name and labels, signed by the same key, has replaced, and that no live pod
and no network uses. With --all it removes every image that no live pod and no network uses, but for the stager's. It prints their IDs.`,
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return c.pruneImages(all, dry) },
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "remove all images that no live pod and no network uses")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the images that would be removed, and remove none")
	return cmd
}

func (c *cli) pruneImages(unused, dry bool) error {
	store, err := c.images()
	if err != nil {
		return err
	}
	listed, err := store.List()
	if err != nil {
		return err
	}
	ring, err := c.config.keyring()
	if err != nil {
		return err
	}
	inUse, err := c.imagesInUse()
	if err != nil {
		return err
	}
	wanted := make(map[string]bool) // by the ID that another image names
	for _, image := range listed {
		if image.Damage == nil {
			for _, d := range image.Manifest.Dependencies {
				wanted[d.ID] = true
			}
		}
	}
	seen := make(map[string]bool)
	for _, image := range listed { // the latest first
		if image.Damage != nil {
			continue
		}
		key := describeLabels(store, image, ring)
		replaced := seen[key] && !wanted[image.ID]
		seen[key] = true
		if inUse[image.ID] != "" || !replaced && (!unused || c.isNeeded(image)) {
			continue
		}
		if !dry {
			err := store.Remove(image.ID, func() error { return c.checkUnused(image.ID, image.ID) })
			if errors.Is(err, images.ErrNotFound) || errors.Is(err, errInUse) {
				continue // another command has removed it meanwhile, or started a pod with it
			}
			if err != nil {
				return err
			}
		}
		if c.json {
			err = c.printJSON(prunedImage{image.ID, image.Manifest.Name, image.Record.Size})
		} else {
			_, err = fmt.Fprintln(c.stdout, image.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describeLabels is the same for images of one name and the same labels, signed by one key: an image that
// is not signed replaces none that is.
func describeLabels(store *images.Store, image *images.Image, ring signing.KeyRing) string {
	signer, err := store.Signer(image, ring)
	if err != nil {
		signer = "" // not signed by a trusted key
	}
	return fmt.Sprintf("%q %q %s", image.Manifest.Name, image.Manifest.Labels, signer)
}

// isNeeded reports whether the launcher itself needs the image for pods: the stager's, and the
// networks' plugins.
func (c *cli) isNeeded(image *images.Image) bool {
	names := []string{c.config.DefaultStagerImage}
	for _, n := range c.networks {
		names = append(names, n.ACI)
	}
	for _, name := range names {
		if ref := c.known(name); ref != "" && image.Is(ref) {
			return true
		}
	}
	return false
}
