package daemon

import (
	"context"
	"errors"
	"strings"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/sources"
)

// fetcher brings images into the store from files, servers and registries.
func (d *Daemon) fetcher() (*sources.Fetcher, error) {
	ring, err := d.KeyRing()
	if err != nil {
		return nil, err
	}
	return &sources.Fetcher{
		Store:    d.imageStore(),
		Ring:     ring,
		Cache:    d.config.CacheDirectory,
		MaxSize:  d.config.MaxImageSize,
		Insecure: d.config.InsecureRegistries,
		Progress: d.progress,
	}, nil
}

// ObtainForPod returns the ID of the image that a pod's app needs, as obtain does. It imports none if the stager's
// image is missing or cannot be trusted.
func (d *Daemon) ObtainForPod(ctx context.Context, ref string) (string, error) {
	_, ref, err := d.obtainBoth(ctx, ref)
	return ref, err
}

// obtainBoth returns the IDs of the stager's image and of an app's.
func (d *Daemon) obtainBoth(ctx context.Context, ref string) (stager, image string, err error) {
	if stager, err = d.obtain(ctx, d.config.DefaultStagerImage); err != nil {
		return "", "", err
	}
	catalog, err := d.catalog()
	if err != nil {
		return "", "", err
	}
	if _, err = findStager(catalog, stager); err != nil {
		return "", "", err
	}
	image, err = d.obtain(ctx, ref)
	return stager, image, err
}

// pinned pins the images of the store until release is called, after obtain has got some. It calls obtain again when an
// image is gone: removed before the pin.
func (d *Daemon) pinned(obtain func() error, gone func() bool) (release func(), err error) {
	for {
		if err := obtain(); err != nil {
			return nil, err
		}
		release, err := d.imageStore().Pin()
		if err != nil || !gone() {
			return release, err
		}
		release()
	}
}

// isGone reports whether an image that obtain has returned for a source was removed since.
func (d *Daemon) isGone(ref, id string) bool {
	if id == ref {
		return false
	}
	_, err := d.imageStore().Get(id)
	return errors.Is(err, images.ErrNotFound)
}

// obtain returns the ID of the image that a reference to a source means, and imports the image unless it has been
// imported before. A reference to an image of the store stays as it is; if the store has no image that docker.io/NAME
// or HOST:PORT/NAME means, the reference is to an image of a registry.
func (d *Daemon) obtain(ctx context.Context, ref string) (string, error) {
	ref, err := d.sourceOf(ref)
	if err != nil || !sources.Is(ref) {
		return ref, err
	}
	fetcher, err := d.fetcher()
	if err != nil {
		return "", err
	}
	if image := fetcher.Known(ref); image != nil {
		return image.ID, nil
	}
	all, err := d.imported(ctx, func() ([]*images.Image, error) {
		image, err := fetcher.Import(ctx, ref)
		return []*images.Image{image}, err
	})
	if err != nil {
		return "", err
	}
	return all[0].ID, nil
}

// sourceOf returns the registry's source for a reference that names no image of the store, as obtain does, and any
// other reference as it is. An image that is pinned comes from no registry that the reference does not name by a
// scheme.
func (d *Daemon) sourceOf(ref string) (string, error) {
	source, ok := sources.OfRegistry(ref)
	if !ok {
		return ref, nil
	}
	for name := range d.config.ImagePins {
		if ref == name || strings.HasPrefix(ref, name+":") {
			return ref, nil
		}
	}
	catalog, err := d.catalog()
	if err != nil {
		return "", err
	}
	if _, err := catalog.FindID(ref); errors.Is(err, images.ErrNotFound) {
		return source, nil
	}
	return ref, nil
}

// findID returns the ID of the image that a person means, also by the source that the image was imported from.
func (d *Daemon) findID(catalog *images.Catalog, ref string) (string, error) {
	id, err := catalog.FindID(ref)
	if !errors.Is(err, images.ErrNotFound) {
		return id, err
	}
	source := ref
	if registry, ok := sources.OfRegistry(ref); ok {
		source = registry
	}
	if known := d.known(source); sources.Is(source) && known != "" {
		return known, nil
	}
	return "", err
}

// known returns the ID of what a source was imported as, "" if it was not. Another reference
// stays as it is.
func (d *Daemon) known(ref string) string {
	if !sources.Is(ref) {
		return ref
	}
	fetcher := &sources.Fetcher{Store: d.imageStore(), Cache: d.config.CacheDirectory}
	if image := fetcher.Known(ref); image != nil {
		return image.ID
	}
	return ""
}
