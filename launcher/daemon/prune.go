package daemon

import (
	"errors"
	"fmt"

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
// replaced, and that no live pod and no network uses. It returns them also with an error.
func (d *Daemon) PruneImages(o PruneOptions) ([]ImageName, error) {
	store, ring, err := d.imagesAndKeys()
	if err != nil {
		return nil, err
	}
	listed, err := store.List()
	if err != nil {
		return nil, err
	}
	inUse, err := d.imagesInUse()
	if err != nil {
		return nil, err
	}
	var pruned []ImageName
	replaced := replacedImages(store, listed, ring)
	for _, image := range listed {
		if image.Damage != nil || inUse[image.ID] != "" || !replaced[image.ID] && (!o.All || d.isNeeded(image)) {
			continue
		}
		if !o.Dry {
			err := store.Remove(image.ID, func() error { return d.checkUnused(image.ID, image.ID) })
			if errors.Is(err, images.ErrNotFound) || errors.Is(err, ErrInUse) {
				continue // another process has removed it meanwhile, or started a pod with it
			}
			if err != nil {
				return pruned, err
			}
		}
		pruned = append(pruned, ImageName{image.ID, image.Manifest.Name, image.Record.Size})
	}
	return pruned, nil
}

// replacedImages returns the IDs of the images that a later one has replaced. listed has the latest first. An image
// that another one names by its ID is not replaced.
func replacedImages(store *images.Store, listed []*images.Image, ring signing.KeyRing) map[string]bool {
	wanted := make(map[string]bool)
	for _, image := range listed {
		if image.Damage == nil {
			for _, d := range image.Manifest.Dependencies {
				wanted[d.ID] = true
			}
		}
	}
	seen, replaced := make(map[string]bool), make(map[string]bool)
	for _, image := range listed {
		if image.Damage != nil {
			continue
		}
		key := describeLabels(store, image, ring)
		replaced[image.ID] = seen[key] && !wanted[image.ID]
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
