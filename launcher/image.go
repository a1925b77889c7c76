package main

import (
	"time"

	"kurma.io/stager/launcher/images"

	"github.com/spf13/cobra"
)

// imageCommand is `image` with its subcommands.
func imageCommand(c *cli) *cobra.Command {
	return group("image", "manage images", imageImportCommand(c), imageListCommand(c), imageRmCommand(c))
}

// images opens the store of images.
func (c *cli) images() (*images.Store, error) { return images.Open(c.config.ImagesDirectory) }

// imageInfo is what `image list --json` shows of an image.
type imageInfo struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Labels   map[string]string `json:"labels"`
	Size     int64             `json:"size"` // bytes
	Imported time.Time         `json:"imported"`
	Signed   bool              `json:"signed"`
	SignedBy string            `json:"signedBy,omitempty"` // fingerprint, if a trusted key made the signature
	Rootfs   string            `json:"rootfs"`
}

func describeImage(image *images.Image) imageInfo {
	info := imageInfo{
		ID:       image.ID,
		Name:     image.Manifest.Name,
		Labels:   make(map[string]string),
		Size:     image.Record.Size,
		Imported: image.Record.Imported,
		Signed:   image.Record.Seal != "",
		SignedBy: image.Record.SignedBy,
		Rootfs:   image.Rootfs(),
	}
	for _, l := range image.Manifest.Labels {
		info.Labels[l.Name] = l.Value
	}
	return info
}
