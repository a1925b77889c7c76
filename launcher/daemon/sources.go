package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/podplan"
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
		Hosts:    d.config.RegistriesDirectory,
		Progress: d.progress,
	}, nil
}

// The values of PodOptions.Pull.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// PullPolicies returns the values of PodOptions.Pull, the default first.
func PullPolicies() []string { return []string{PullMissing, PullAlways, PullNever} }

// obtained maps the references to a pod's images, that of its stager included, to what obtain has returned for them.
type obtained map[string]string

// Obtain imports the images that Create needs for the pod, as Create does. It imports none if the stager's image is
// missing or cannot be trusted.
func (d *Daemon) Obtain(ctx context.Context, o PodOptions) error {
	_, err := d.obtainAll(ctx, o)
	return err
}

func (d *Daemon) obtainAll(ctx context.Context, o PodOptions) (obtained, error) {
	pull := o.Pull
	if pull == PullAlways {
		pull = PullMissing
	}
	stager, err := d.obtain(ctx, d.config.DefaultStagerImage, pull)
	if err != nil {
		return nil, err
	}
	catalog, err := d.catalog()
	if err != nil {
		return nil, err
	}
	if _, err = findStager(catalog, stager); err != nil {
		return nil, err
	}
	refs := []string{o.Image}
	if o.Manifest != nil {
		refs = podplan.References(o.Manifest)
	}
	got := make(obtained)
	for _, ref := range refs {
		if _, have := got[ref]; have {
			continue
		}
		if got[ref], err = d.obtain(ctx, ref, o.Pull); err != nil {
			return nil, err
		}
	}
	got[d.config.DefaultStagerImage] = stager
	return got, nil
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

// anyGone reports whether an image that obtain has returned for a source was removed since.
func (d *Daemon) anyGone(got obtained) bool {
	for ref, id := range got {
		if d.isGone(ref, id) {
			return true
		}
	}
	return false
}

func (d *Daemon) isGone(ref, id string) bool {
	if id == ref {
		return false
	}
	_, err := d.imageStore().Get(id)
	return errors.Is(err, images.ErrNotFound)
}

// ErrNotPulled says that an image was not imported because PodOptions.Pull is "never".
var ErrNotPulled = errors.New("the store does not have this image, and none is imported")

// obtain returns the ID of the image that a reference to a source means, and imports the image when PodOptions.Pull
// says so. A reference to an image of the store stays as it is; if the store has no image that docker.io/NAME or
// HOST:PORT/NAME means, or if images are always imported, the reference is to an image of a registry.
func (d *Daemon) obtain(ctx context.Context, ref, pull string) (string, error) {
	ref, err := d.sourceOf(ref, pull == PullAlways)
	if err != nil || !sources.Is(ref) {
		return ref, err
	}
	fetcher, err := d.fetcher()
	if err != nil {
		return "", err
	}
	if image := fetcher.Known(ref); image != nil && pull != PullAlways {
		return image.ID, nil
	}
	if pull == PullNever {
		return "", fmt.Errorf("%s: %w", ref, ErrNotPulled)
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

// sourceOf returns the registry's source for a reference that names no image of the store, as obtain does, or with
// always also for one that does, and any other reference as it is. An image that is pinned comes from no registry that
// the reference does not name by a scheme.
func (d *Daemon) sourceOf(ref string, always bool) (string, error) {
	source, ok := sources.OfRegistry(ref)
	if !ok {
		return ref, nil
	}
	for name := range d.config.ImagePins {
		if ref == name || strings.HasPrefix(ref, name+":") {
			return ref, nil
		}
	}
	if always {
		return source, nil
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
