package images

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// layerPrefix begins the names of layers.
const layerPrefix = "oci-layer/"

// LayerName returns the name of a layer's image. chain identifies the layer and all below it.
func LayerName(chain string) string { return layerPrefix + chain }

// IsLayer reports whether the image is a layer of an image of Docker or OCI: it has files and nothing to execute, and
// exists for the images that need it.
func (i *Image) IsLayer() bool {
	return i.Damage == nil && i.Manifest.App == nil && strings.HasPrefix(i.Manifest.Name, layerPrefix)
}

// needs reports whether the image has a dependency with that ID.
func (i *Image) needs(id string) bool {
	return i.Damage == nil && slices.ContainsFunc(i.Manifest.Dependencies, func(d Dependency) bool { return d.ID == id })
}

// NeededBy returns NAME[:VERSION] of an image that names another one by its ID, and "" if none of all does.
func NeededBy(all []*Image, id string) string {
	i := slices.IndexFunc(all, func(image *Image) bool { return image.needs(id) })
	if i < 0 {
		return ""
	}
	return all[i].Versioned()
}

// Needed returns the IDs of the images that the images depend on, and of those that these depend on, and so on. Of a
// dependency without an ID any image of the name may be meant.
func Needed(all, by []*Image) map[string]bool {
	known := make(map[string]*Image)
	for _, image := range all {
		known[image.ID] = image
	}
	needed := make(map[string]bool)
	for rest := slices.Clone(by); len(rest) > 0; rest = rest[1:] {
		if rest[0].Damage != nil {
			continue
		}
		for _, d := range rest[0].Manifest.Dependencies {
			for _, image := range meant(all, known, d) {
				if !needed[image.ID] {
					needed[image.ID] = true
					rest = append(rest, image)
				}
			}
		}
	}
	return needed
}

// meant returns the images that a dependency may mean.
func meant(all []*Image, known map[string]*Image, d Dependency) (images []*Image) {
	if image := known[d.ID]; image != nil {
		return []*Image{image}
	}
	for _, image := range all {
		if d.ID == "" && image.Damage == nil && image.Manifest.Name == d.Name {
			images = append(images, image)
		}
	}
	return images
}

// Unneeded returns the layers that no image needs when some have gone: none while an image is damaged, which may need
// any of them.
func Unneeded(all, gone []*Image) []*Image {
	var kept, layers []*Image
	for _, image := range all {
		switch {
		case slices.Contains(gone, image):
		case image.Damage != nil:
			return nil
		case image.IsLayer():
			layers = append(layers, image)
		default:
			kept = append(kept, image)
		}
	}
	needed := Needed(all, kept)
	return slices.DeleteFunc(layers, func(layer *Image) bool { return needed[layer.ID] })
}

// Importing says, until release is called, that an import runs of which an image may be in the store that nothing names
// yet. The function that Remove gets learns of it.
func (s *Store) Importing() (release func(), err error) {
	file, err := s.lockFile(".imports", unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

// Keep returns an image that an import is about to need, and keeps it until release is called: the function that Remove
// gets learns of it. An image that the store does not have is ErrNotFound.
func (s *Store) Keep(id string) (image *Image, release func(), err error) {
	unpin, err := s.Pin() // the image is not removed before it is locked
	if err != nil {
		return nil, nil, err
	}
	defer unpin()
	if image, err = s.Get(id); err != nil {
		return nil, nil, err
	}
	dir, err := LockFolder(image.Dir, unix.LOCK_SH)
	if err != nil {
		return nil, nil, fmt.Errorf("keep image %s: %w", id, err)
	}
	return image, func() { _ = dir.Close() }, nil
}

// Imports is what the function that Remove gets learns of imports that run.
type Imports struct {
	Running bool // between Importing and its release
}

// Keep reports whether an import keeps an image, see Store.Keep. An image that cannot be looked at counts as kept.
func (Imports) Keep(image *Image) bool {
	dir, err := LockFolder(image.Dir, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_ = dir.Close()
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}
