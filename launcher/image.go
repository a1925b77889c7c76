package main

import (
	"time"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/signing"

	"github.com/spf13/cobra"
)

// imageCommand is `image` with its subcommands.
func imageCommand(c *cli) *cobra.Command {
	return group("image", "manage images", imageImportCommand(c), imageListCommand(c), imageExportCommand(c), imageRmCommand(c), imagePruneCommand(c))
}

// catalog opens the store of images and reads the keys that are trusted.
func (c *cli) catalog() (*images.Store, *images.Catalog, error) {
	store, err := c.images()
	if err != nil {
		return nil, nil, err
	}
	ring, err := c.config.keyring()
	if err != nil {
		return nil, nil, err
	}
	return store, store.Catalog(ring, c.config.ImagePins), nil
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
	SignedBy string            `json:"signedBy,omitempty"` // fingerprint, if a trusted key made the signature and it is good
	Distrust string            `json:"distrust,omitempty"` // why the signature does not count
	Rootfs   string            `json:"rootfs"`
}

// describeImage describes an image. Whether it is trusted is found out now.
func describeImage(store *images.Store, image *images.Image, ring signing.KeyRing) imageInfo {
	info := imageInfo{
		ID:       image.ID,
		Name:     image.Manifest.Name,
		Labels:   make(map[string]string),
		Size:     image.Record.Size,
		Imported: image.Record.Imported,
		Signed:   image.Record.Seal != "",
		Rootfs:   image.Rootfs(),
	}
	if info.Signed {
		signer, err := store.Verify(image, ring)
		if err != nil {
			info.Distrust = oneLine(err)
		}
		info.SignedBy = signer
	}
	for _, l := range image.Manifest.Labels {
		info.Labels[l.Name] = l.Value
	}
	return info
}
