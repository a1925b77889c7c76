package main

import (
	"fmt"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/signing"

	"github.com/spf13/cobra"
)

// imageListCommand is `image list`.
func imageListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             "list images, the latest first",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			store, err := c.images()
			if err != nil {
				return err
			}
			return c.listImages(store)
		},
	}
}

func (c *cli) listImages(store *images.Store) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	ring, err := c.config.keyring()
	if err != nil {
		return err
	}
	if c.json {
		return c.listImagesJSON(store, all, ring)
	}
	out := c.table("ID", "NAME", "VERSION", "ARCH", "SIZE", "IMPORTED ("+zone()+")", "SIGNED")
	for _, image := range all {
		if image.Damage != nil {
			out.row(shortID(image.ID), "-", "-", "-", "-", "-", "damaged: "+oneLine(image.Damage))
			continue
		}
		info := describeImage(store, image, ring)
		out.row(shortID(info.ID), info.Name, info.Labels["version"], info.Labels["arch"], fmt.Sprintf("%.1f MB", float64(info.Size)/1e6),
			localTime(info.Imported), signedText(info))
	}
	return out.flush()
}

func (c *cli) listImagesJSON(store *images.Store, all []*images.Image, ring signing.KeyRing) error {
	for _, image := range all {
		var info any
		if image.Damage != nil {
			info = damagedImage{image.ID, oneLine(image.Damage)}
		} else {
			info = describeImage(store, image, ring)
		}
		if err := c.printJSON(info); err != nil {
			return err
		}
	}
	return nil
}

// damagedImage is what `image list --json` shows of a damaged image.
type damagedImage struct {
	ID      string `json:"id"`
	Damaged string `json:"damaged"` // why
}

func signedText(info imageInfo) string {
	switch {
	case !info.Signed:
		return "no"
	case info.Distrust == "":
		return "by " + info.SignedBy
	case info.SignedBy == "" && info.Distrust == signing.ErrUnknownKey.Error():
		return "by an unknown key"
	}
	return "not trusted: " + info.Distrust
}
