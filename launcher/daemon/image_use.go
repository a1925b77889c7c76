package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kurma.io/stager/launcher/images"
)

// RemoveImage removes the image that a person means, and the layers that no image needs then. An image that a live
// pod, a network or another image uses is an error that says so.
func (d *Daemon) RemoveImage(ctx context.Context, ref string) error {
	catalog, err := d.catalog()
	if err != nil {
		return err
	}
	id, err := d.findID(catalog, ref)
	if err != nil {
		return err
	}
	_, err = d.imageStore().Remove(ctx, func(all []*images.Image, imports images.Imports) ([]*images.Image, error) {
		i := slices.IndexFunc(all, func(image *images.Image) bool { return image.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("%w: %s", images.ErrNotFound, id)
		}
		inUse, err := d.imagesInUse()
		if err != nil {
			return nil, err
		}
		if by := usedBy(all, all[i], inUse, imports); by != "" {
			return nil, fmt.Errorf("image %s: in use by %s", ref, by)
		}
		return withLayers(all, all[i:i+1], inUse, imports), nil
	})
	return err
}

// usedBy returns what needs an image, "" if it can be removed.
func usedBy(all []*images.Image, image *images.Image, inUse map[string]string, imports images.Imports) string {
	switch by := images.NeededBy(all, image.ID); {
	case inUse[image.ID] != "":
		return inUse[image.ID]
	case by != "":
		return fmt.Sprintf("image %q", by)
	case imports.Keep(image):
		return "an import that runs"
	}
	return ""
}

// withLayers returns images that are to be removed and the layers that nothing needs then, nor an import that runs.
func withLayers(
	all, removed []*images.Image, inUse map[string]string, imports images.Imports,
) []*images.Image {
	chosen := slices.Clone(removed)
	for _, layer := range images.Unneeded(all, removed) {
		if inUse[layer.ID] == "" && !slices.Contains(chosen, layer) && !imports.Keep(layer) {
			chosen = append(chosen, layer)
		}
	}
	return chosen
}

// freeLayers removes the layers that nothing needs, none if dry is set, and returns their number. It waits for pins
// only if there are such layers, and until ctx ends.
func (d *Daemon) freeLayers(ctx context.Context, dry bool) (count int, err error) {
	store := d.imageStore()
	all, err := store.List()
	if err != nil || len(images.Unneeded(all, nil)) == 0 {
		return 0, err
	}
	_, err = store.Remove(ctx, func(all []*images.Image, imports images.Imports) ([]*images.Image, error) {
		inUse, err := d.imagesInUse()
		if err != nil {
			return nil, err
		}
		layers := withLayers(all, nil, inUse, imports)
		count = len(layers)
		if dry {
			return nil, nil
		}
		return layers, nil
	})
	return count, err
}

// freeWait is how long imported waits for whoever has pinned the images, who may be waiting for this import.
const freeWait = time.Second

// imported imports images. If that succeeds or is interrupted, the layers that no image needs are
// removed, unless another import runs: an import that has failed may be tried again, and needs them then. While images
// are pinned the layers stay until the next removal.
func (d *Daemon) imported(ctx context.Context, from func() ([]*images.Image, error)) ([]*images.Image, error) {
	all, err := from()
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	free, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeWait)
	defer cancel()
	_, freeErr := d.freeLayers(free, false)
	if errors.Is(freeErr, context.DeadlineExceeded) {
		freeErr = nil
	}
	return all, errors.Join(err, freeErr)
}

// imagesInUse maps the ID of each image in use to the live pod, or the network, that uses it, for messages.
func (d *Daemon) imagesInUse() (map[string]string, error) {
	store := d.pods()
	byPods, err := store.ImagesInUse()
	if err != nil {
		return nil, err
	}
	networks, err := d.containers().Images(usesNetwork(store))
	if err != nil {
		return nil, err
	}
	inUse := make(map[string]string)
	for id, network := range networks {
		inUse[id] = fmt.Sprintf("network %q", network)
	}
	for id, pod := range byPods {
		inUse[id] = fmt.Sprintf("pod %q", pod)
	}
	return inUse, nil
}
