package main

import (
	"fmt"
	"text/tabwriter"

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
	out := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "ID\tNAME\tVERSION\tARCH\tSIZE\tIMPORTED ("+zone()+")\tSIGNED")
	for _, image := range all {
		if image.Damage != nil {
			fmt.Fprintf(out, "%s\t-\t-\t-\t-\t-\tdamaged: %s\n", shortID(image.ID), printable(oneLine(image.Damage)))
			continue
		}
		info := describeImage(store, image, ring)
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.1f MB\t%s\t%s\n", shortID(info.ID), printable(info.Name),
			dash(printable(info.Labels["version"])), dash(printable(info.Labels["arch"])), float64(info.Size)/1e6,
			localTime(info.Imported), signedText(info))
	}
	return out.Flush()
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
	return "not trusted: " + printable(info.Distrust)
}
