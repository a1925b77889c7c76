package images

import (
	"fmt"
	"slices"
)

// maxDepth is the maximum length of a chain of dependencies.
const maxDepth = 1000

// Layers returns an image and all images that it depends on in the order of appImageOrder:
// the top one first. The App Container specification applies dependencies in list
// order, depth first, then the image itself, and later ones cover earlier ones (C-FS-03). The
// result is that order reversed. Each image is in it once, at its topmost place,
// because a second copy below would be covered completely.
//
// A dependency without an image ID is the image that the catalog chooses.
func (c *Catalog) Layers(top *Image) ([]*Image, error) {
	sound, damaged, err := c.store.list()
	if err != nil {
		return nil, err
	}
	order, err := layers(sound, top, c.choose)
	return order, hintAtDamaged(damaged, err)
}

// LayersAmong is Layers among images that List has returned, for a caller that asks for many.
func (c *Catalog) LayersAmong(all []*Image, top *Image) ([]*Image, error) {
	sound := slices.DeleteFunc(slices.Clone(all), func(i *Image) bool { return i.Damage != nil })
	return layers(sound, top, c.choose)
}

// Size returns the bytes of the files of an image and of all images that it depends on; of its own if all does not
// have one of these.
func (c *Catalog) Size(all []*Image, image *Image) int64 {
	order, err := c.LayersAmong(all, image)
	if err != nil {
		order = []*Image{image}
	}
	var size int64
	for _, layer := range order {
		size += layer.Record.Size
	}
	return size
}

func layers(all []*Image, top *Image, choose chooser) ([]*Image, error) {
	r := resolver{all: all, choose: choose, placed: make(map[string]bool)}
	if err := r.add(top); err != nil {
		return nil, err
	}
	return r.order, nil
}

// chooser returns the image of all that a name and labels mean.
type chooser func(all []*Image, name string, labels map[string]string) (*Image, error)

// resolver walks dependencies from the top: an image, then its dependencies, the last of
// the list first.
type resolver struct {
	all    []*Image
	choose chooser
	chain  []string // the images being resolved, to name a cycle
	placed map[string]bool
	order  []*Image
}

func (r *resolver) add(image *Image) error {
	if slices.Contains(r.chain, image.ID) {
		return fmt.Errorf("image %q (%s) depends on itself", image.Manifest.Name, image.ID)
	}
	if len(r.chain) >= maxDepth {
		return fmt.Errorf("image %q: more than %d dependencies deep", image.Manifest.Name, maxDepth)
	}
	if r.placed[image.ID] {
		return nil // its dependencies also have their places
	}
	r.chain = append(r.chain, image.ID)
	r.placed[image.ID] = true
	r.order = append(r.order, image)
	for _, dep := range slices.Backward(image.Manifest.Dependencies) {
		found, err := r.find(dep)
		if err != nil {
			return fmt.Errorf("resolve dependency of image %s: %w", image.Manifest.Name, err)
		}
		if err := r.add(found); err != nil {
			return err
		}
	}
	r.chain = r.chain[:len(r.chain)-1]
	return nil
}

func (r *resolver) find(dep Dependency) (*Image, error) {
	if dep.ID == "" {
		image, err := r.choose(r.all, dep.Name, dep.Labels)
		if err != nil {
			err = fmt.Errorf("%w: %q", err, describe(dep.Name, dep.Labels))
		}
		return image, err
	}
	i := slices.IndexFunc(r.all, func(i *Image) bool { return i.ID == dep.ID })
	if i < 0 {
		return nil, fmt.Errorf("%w: %q with ID %s", ErrNotFound, dep.Name, dep.ID)
	}
	found := r.all[i]
	if found.Manifest.Name != dep.Name || !found.Manifest.hasLabels(dep.Labels) {
		return nil, fmt.Errorf("image %s is not %q", dep.ID, describe(dep.Name, dep.Labels))
	}
	return found, nil
}
