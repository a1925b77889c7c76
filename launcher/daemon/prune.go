package daemon

import (
	"context"
	"fmt"
	"slices"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/signing"
)

// PruneOptions says which images PruneImages removes.
type PruneOptions struct {
	All bool // every image that no live pod and no network uses, but for the stager's
	Dry bool // remove none
}

// ImageName is what is known of an image without a look at its files.
type ImageName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes
}

// PruneImages removes the images that a later import of the same name and labels, signed by the same key, has
// replaced, and that no live pod, no network and no other image uses, and layers that no image needs. It returns them
// also with an error.
func (d *Daemon) PruneImages(ctx context.Context, o PruneOptions) ([]ImageName, error) {
	store, ring, err := d.imagesAndKeys()
	if err != nil {
		return nil, err
	}
	var chosen []*images.Image
	removed, err := store.Remove(ctx, func(all []*images.Image, imports images.Imports) ([]*images.Image, error) {
		inUse, err := d.imagesInUse()
		if err != nil {
			return nil, err
		}
		old := replacedImages(store, all, ring)
		chosen = withLayers(all, prunable(all, func(image *images.Image) bool {
			return inUse[image.ID] == "" && !image.IsLayer() && !imports.Keep(image) &&
				(old[image.ID] || o.All && !d.isNeeded(image))
		}), inUse, imports)
		if o.Dry {
			return nil, nil
		}
		return chosen, nil
	})
	if o.Dry {
		removed = chosen
	}
	var pruned []ImageName
	for _, image := range removed {
		pruned = append(pruned, ImageName{image.ID, image.Manifest.Name, image.Record.Size})
	}
	return pruned, err
}

// prunable returns the sound images that may go, without the images that others need.
func prunable(all []*images.Image, mayGo func(*images.Image) bool) []*images.Image {
	var kept, gone []*images.Image
	for _, image := range all {
		if image.Damage == nil && mayGo(image) {
			gone = append(gone, image)
		} else {
			kept = append(kept, image)
		}
	}
	needed := images.Needed(all, kept)
	return slices.DeleteFunc(gone, func(image *images.Image) bool { return needed[image.ID] })
}

// replacedImages returns the IDs of the images that a later one has replaced. listed has the latest first.
func replacedImages(store *images.Store, listed []*images.Image, ring signing.KeyRing) map[string]bool {
	seen, replaced := make(map[string]bool), make(map[string]bool)
	for _, image := range listed {
		if image.Damage != nil {
			continue
		}
		key := describeLabels(store, image, ring)
		replaced[image.ID] = seen[key]
		seen[key] = true
	}
	return replaced
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

// isNeeded reports whether the daemon itself needs the image for pods: the stager's, and the
// networks' plugins.
func (d *Daemon) isNeeded(image *images.Image) bool {
	names := []string{d.config.DefaultStagerImage}
	for _, n := range d.networks {
		names = append(names, n.ACI)
	}
	for _, name := range names {
		if ref := d.known(name); ref != "" && image.Is(ref) {
			return true
		}
	}
	return false
}
