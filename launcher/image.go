package main

import (
	"context"
	"time"

	"kurma.io/stager/launcher/images"
)

// runImage is `image import FILE…`, `image list` and `image rm IMAGE…`.
func runImage(ctx context.Context, c *cli, args []string) error {
	if len(args) == 0 {
		return usageError{"image: want import, list or rm"}
	}
	rest, err := c.parse("image "+args[0], args[1:], nil)
	if err != nil {
		return err
	}
	store, err := images.Open(c.config.ImagesDirectory)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "import" && len(rest) > 0:
		return c.importImages(ctx, store, rest)
	case args[0] == "list" && len(rest) == 0:
		return c.listImages(store)
	case args[0] == "rm" && len(rest) > 0:
		return c.removeImages(store, rest)
	}
	return usageError{"image: want import FILE…, list, or rm IMAGE…"}
}

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
