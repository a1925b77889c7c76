package main

import (
	"fmt"
	"slices"
	"time"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/signing"

	"github.com/spf13/cobra"
)

// imageListCommand is `image list`.
func imageListCommand(c *cli) *cobra.Command {
	var o imageListOptions
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "list images, the latest first",
		Long: `list prints a line for each image, the latest import first, and checks each signature. SIZE has the layers
that the image needs. The layers of images of Docker and OCI are listed with --all only. On a terminal rows have at
most 80 characters; --no-trunc prints whole IDs and names, the architecture, the time of the import, and who has
signed the image.`,
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return c.listImages(o) },
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "list layers as well")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only the IDs")
	cmd.Flags().BoolVar(&o.whole, "no-trunc", false, "print IDs and rows as long as they are")
	return cmd
}

// imageListOptions is the command line of `image list`.
type imageListOptions struct{ all, quiet, whole bool }

func (c *cli) listImages(o imageListOptions) error {
	letSignalsEnd() // nothing is written
	all, err := c.daemon.Images()
	if err != nil {
		return err
	}
	if !o.all {
		all = slices.DeleteFunc(all, func(image daemon.Image) bool { return image.Layer })
	}
	switch {
	case c.json:
		return c.listImagesJSON(all)
	case o.quiet:
		return c.listImageIDs(all, o)
	case o.whole:
		return c.listWholeImages(all)
	}
	return c.listShortImages(all)
}

// listShortImages prints a table that fits a terminal.
func (c *cli) listShortImages(all []daemon.Image) error {
	out := c.table("ID", "NAME", "VERSION", "SIZE", "IMPORTED", "SIGNED")
	out.cut = []int{1, 2, 5}
	for _, image := range all {
		if image.Damage != nil {
			out.row(shortID(image.ID), "-", "-", "-", "-", "damaged")
			continue
		}
		out.row(shortID(image.ID), image.Name, image.Labels["version"], sizeText(image),
			image.Imported.Local().Format(time.DateOnly), signedText(image))
	}
	return out.flush()
}

// listWholeImages prints a row for each image as long as it is.
func (c *cli) listWholeImages(all []daemon.Image) error {
	out := c.table("ID", "NAME", "VERSION", "ARCH", "SIZE", "IMPORTED ("+zone()+")", "SIGNED")
	for _, image := range all {
		if image.Damage != nil {
			out.row(image.ID, "-", "-", "-", "-", "-", "damaged: "+oneLine(image.Damage))
			continue
		}
		out.row(image.ID, image.Name, image.Labels["version"], image.Labels["arch"], sizeText(image),
			localTime(image.Imported), signedBy(image))
	}
	return out.flush()
}

func (c *cli) listImageIDs(all []daemon.Image, o imageListOptions) error {
	for _, image := range all {
		id := image.ID
		if !o.whole {
			id = shortID(id)
		}
		if err := c.line(id); err != nil {
			return err
		}
	}
	return nil
}

func sizeText(image daemon.Image) string { return fmt.Sprintf("%.1f MB", float64(image.Size)/1e6) }

func (c *cli) listImagesJSON(all []daemon.Image) error {
	for _, image := range all {
		var shown any = image
		if image.Damage != nil {
			shown = damagedImage{image.ID, oneLine(image.Damage)}
		}
		if err := c.printJSON(shown); err != nil {
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

// signedText is signedBy in few words.
func signedText(image daemon.Image) string {
	switch {
	case !image.Signed:
		return "no"
	case image.Distrust == "":
		return "yes"
	}
	return "not trusted"
}

func signedBy(image daemon.Image) string {
	switch {
	case !image.Signed:
		return "no"
	case image.Distrust == "":
		return "by " + image.SignedBy
	case image.SignedBy == "" && image.Distrust == signing.ErrUnknownKey.Error():
		return "by an unknown key"
	}
	return "not trusted: " + image.Distrust
}
