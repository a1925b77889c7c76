package daemon

import (
	"context"
	"encoding/json"
	"time"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/signing"
)

// Image is an image of the store.
type Image struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Labels   map[string]string `json:"labels"`
	Size     int64             `json:"size"` // bytes, with those of the images that it depends on
	Imported time.Time         `json:"imported"`
	Signed   bool              `json:"signed"`
	// fingerprint, if a trusted key made the signature and it is good
	SignedBy string `json:"signedBy,omitempty"`
	Distrust string `json:"distrust,omitempty"` // why the signature does not count
	Warning  string `json:"warning,omitempty"`  // what may be wrong with the image
	Rootfs   string `json:"rootfs"`
	Layer    bool   `json:"layer,omitempty"` // the image is a layer of images of Docker or OCI

	Manifest json.RawMessage `json:"-"`
	// Damage is why the image cannot be read, nil for an image that can be used. Only Images returns damaged images, of
	// which nothing else but the ID is set.
	Damage error `json:"-"`
}

func (d *Daemon) imageStore() *images.Store { return images.Open(d.config.ImagesDirectory) }

// catalog opens the store of images and reads the keys that are trusted.
func (d *Daemon) catalog() (*images.Catalog, error) {
	store, ring, err := d.imagesAndKeys()
	if err != nil {
		return nil, err
	}
	return store.Catalog(ring, d.config.ImagePins), nil
}

func (d *Daemon) imagesAndKeys() (*images.Store, signing.KeyRing, error) {
	ring, err := d.KeyRing()
	return d.imageStore(), ring, err
}

// describeImage describes one of all images. Whether it is trusted is found out now.
func (d *Daemon) describeImage(all []*images.Image, image *images.Image, ring signing.KeyRing) Image {
	store := d.imageStore()
	info := Image{
		ID:       image.ID,
		Name:     image.Manifest.Name,
		Labels:   image.Manifest.Labels,
		Size:     store.Catalog(ring, d.config.ImagePins).Size(all, image),
		Imported: image.Record.Imported,
		Signed:   image.Record.Seal != "",
		Rootfs:   image.Rootfs(),
		Layer:    image.IsLayer(),
		Manifest: image.Manifest.Raw,
	}
	if image.Record.Unmarked {
		info.Warning = "the archive has no end marker and may be incomplete"
	}
	if info.Signed {
		signer, err := store.Verify(image, ring)
		if err != nil {
			info.Distrust = plaintext.Line(err.Error())
		}
		info.SignedBy = signer
	}
	return info
}

func (d *Daemon) describeOne(image *images.Image) (Image, error) {
	store, ring, err := d.imagesAndKeys()
	if err != nil {
		return Image{}, err
	}
	all, err := store.List()
	if err != nil {
		return Image{}, err
	}
	return d.describeImage(all, image, ring), nil
}

// Images returns all images, the latest import first, and damaged images at the end.
func (d *Daemon) Images() ([]Image, error) {
	store, ring, err := d.imagesAndKeys()
	if err != nil {
		return nil, err
	}
	listed, err := store.List()
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, image := range listed {
		if image.Damage != nil {
			all = append(all, Image{ID: image.ID, Damage: image.Damage})
			continue
		}
		all = append(all, d.describeImage(listed, image, ring))
	}
	return all, nil
}

// ImageNames returns the names of all images that can be used, without layers, the latest import first.
func (d *Daemon) ImageNames() ([]ImageName, error) {
	listed, err := d.imageStore().List()
	var all []ImageName
	for _, image := range listed {
		if image.Damage == nil && !image.IsLayer() {
			all = append(all, ImageName{image.ID, image.Manifest.Name, image.Record.Size})
		}
	}
	return all, err
}

func (d *Daemon) find(catalog *images.Catalog, ref string) (*images.Image, error) {
	id, err := d.findID(catalog, ref)
	if err != nil {
		return nil, err
	}
	return d.imageStore().Get(id)
}

// FindImage returns the image that a person means: an ID, the start of one, or NAME[:VERSION]. An image that the
// store does not have is images.ErrNotFound.
func (d *Daemon) FindImage(ref string) (Image, error) {
	catalog, err := d.catalog()
	if err != nil {
		return Image{}, err
	}
	image, err := d.find(catalog, ref)
	if err != nil {
		return Image{}, err
	}
	return d.describeOne(image)
}

// ImportImages imports the images of a source, or of a file's path, see sources.Fetcher.ImportAll. It returns an
// image for each of their names, one at least.
func (d *Daemon) ImportImages(ctx context.Context, source string) ([]Image, error) {
	fetcher, err := d.fetcher()
	if err != nil {
		return nil, err
	}
	found, err := d.imported(ctx, func() ([]*images.Image, error) { return fetcher.ImportAll(ctx, source) })
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, image := range found {
		described, err := d.describeOne(image)
		if err != nil {
			return nil, err
		}
		all = append(all, described)
	}
	return all, nil
}
