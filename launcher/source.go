package main

import (
	"context"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/sources"
)

// fetcher brings images into the store from files, servers and registries.
func (c *cli) fetcher(store *images.Store) (*sources.Fetcher, error) {
	ring, err := c.config.keyring()
	if err != nil {
		return nil, err
	}
	return &sources.Fetcher{
		Store:    store,
		Ring:     ring,
		Cache:    c.config.CacheDirectory,
		MaxSize:  c.config.MaxImageSize,
		Insecure: c.config.InsecureRegistries,
		Progress: c.progress,
	}, nil
}

// obtain returns the ID of the image that a reference to a source means. A reference to an image
// of the store stays as it is.
func (c *cli) obtain(ctx context.Context, ref string) (string, error) {
	if !sources.Is(ref) {
		return ref, nil
	}
	store, err := c.images()
	if err != nil {
		return "", err
	}
	fetcher, err := c.fetcher(store)
	if err != nil {
		return "", err
	}
	image, err := fetcher.Obtain(ctx, ref)
	if err != nil {
		return "", err
	}
	return image.ID, nil
}

// obtainAll is obtain for the image of a pod, and for that of the stager, whose ID is in the
// configuration afterwards.
func (c *cli) obtainAll(ctx context.Context, ref string) (string, error) {
	ref, err := c.obtain(ctx, ref)
	if err != nil {
		return "", err
	}
	c.config.DefaultStagerImage, err = c.obtain(ctx, c.config.DefaultStagerImage)
	return ref, err
}

// known returns the ID of what a source was imported as, "" if it was not. Another reference
// stays as it is.
func (c *cli) known(ref string) string {
	if !sources.Is(ref) {
		return ref
	}
	store, err := c.images()
	if err != nil {
		return ""
	}
	fetcher := &sources.Fetcher{Store: store, Cache: c.config.CacheDirectory}
	if image := fetcher.Known(ref); image != nil {
		return image.ID
	}
	return ""
}
