package daemon

import (
	"context"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/sources"
)

// fetcher brings images into the store from files, servers and registries.
func (d *Daemon) fetcher(store *images.Store) (*sources.Fetcher, error) {
	ring, err := d.config.keyring()
	if err != nil {
		return nil, err
	}
	return &sources.Fetcher{
		Store:    store,
		Ring:     ring,
		Cache:    d.config.CacheDirectory,
		MaxSize:  d.config.MaxImageSize,
		Insecure: d.config.InsecureRegistries,
		Progress: d.progress,
	}, nil
}

// Obtain returns the ID of the image that a reference to a source means, and imports the image unless it has been
// imported before. A reference to an image of the store stays as it is.
func (d *Daemon) Obtain(ctx context.Context, ref string) (string, error) {
	if !sources.Is(ref) {
		return ref, nil
	}
	store, err := d.imageStore()
	if err != nil {
		return "", err
	}
	fetcher, err := d.fetcher(store)
	if err != nil {
		return "", err
	}
	if image := fetcher.Known(ref); image != nil {
		return image.ID, nil
	}
	image, err := d.imported(ctx, store, func() (*images.Image, error) { return fetcher.Import(ctx, ref) })
	if err != nil {
		return "", err
	}
	return image.ID, nil
}

// known returns the ID of what a source was imported as, "" if it was not. Another reference
// stays as it is.
func (d *Daemon) known(ref string) string {
	if !sources.Is(ref) {
		return ref
	}
	store, err := d.imageStore()
	if err != nil {
		return ""
	}
	fetcher := &sources.Fetcher{Store: store, Cache: d.config.CacheDirectory}
	if image := fetcher.Known(ref); image != nil {
		return image.ID
	}
	return ""
}
