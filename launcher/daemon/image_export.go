package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"kurma.io/stager/launcher/images"
)

// Exported is what ExportImage has written.
type Exported struct {
	Merged int      // images, such as layers, whose files are in the image's file
	Beside []string // files of images that the image depends on; each must be imported for the image to run
	// files with another ID than their images, because the store does not keep the files of unsigned images
	Others []Rebuilt
}

// Rebuilt is a file that ExportImage has built of an image's files, and its ID, which is that of the image that an
// import of the file makes, on each machine.
type Rebuilt struct{ File, ID string }

// ExportImage writes an image's ACI into a new file, and its signature, if it has one, into path.asc. The images that
// it depends on are merged into the file unless that would lose a signature or they have a pathWhitelist: they are
// written beside it, into path.1, path.2 and so on. A file that is rebuilt is compressed as asked. After an error, also
// by the end of ctx, no file is left.
func (d *Daemon) ExportImage(ctx context.Context, ref, path string, as images.Compression) (Exported, error) {
	catalog, err := d.catalog()
	if err != nil {
		return Exported{}, err
	}
	store := d.imageStore()
	release, err := store.Pin()
	if err != nil {
		return Exported{}, err
	}
	defer release()
	image, err := d.find(catalog, ref)
	if err != nil {
		return Exported{}, err
	}
	order, err := catalog.Layers(image)
	if err != nil {
		return Exported{}, err
	}
	x := exporter{store: store, as: as}
	if err := x.export(ctx, order, path); err != nil {
		return Exported{}, errors.Join(err, x.undo())
	}
	return x.done, nil
}

// exporter writes the files of an export.
type exporter struct {
	store *images.Store
	as    images.Compression
	made  []string
	done  Exported
}

func (x *exporter) export(ctx context.Context, order []*images.Image, path string) error {
	if len(order) > 1 && images.Mergeable(order) {
		x.done.Merged = len(order) - 1
		merged := func(file *os.File) (string, error) { return x.store.ExportMerged(order, file, x.as) }
		return x.write(ctx, path, order[0].ID, merged)
	}
	for i, image := range order {
		at := path
		if i > 0 {
			at = fmt.Sprintf("%s.%d", path, i)
			x.done.Beside = append(x.done.Beside, at)
		}
		err := x.write(ctx, at, image.ID, func(file *os.File) (string, error) {
			return x.store.Export(image, file, x.as, func() (io.WriteCloser, error) { return x.create(at + ".asc") })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// write has a new file written, whose ID may be the image's. The end of ctx closes the file, so that write fails.
func (x *exporter) write(
	ctx context.Context, path, image string, write func(*os.File) (id string, err error),
) error {
	file, err := x.create(path)
	if err != nil {
		return err
	}
	whole := context.AfterFunc(ctx, func() { _ = file.Close() })
	id, err := write(file)
	if !whole() {
		return context.Cause(ctx)
	}
	if id != image {
		x.done.Others = append(x.done.Others, Rebuilt{path, id})
	}
	return errors.Join(err, file.Close())
}

func (x *exporter) create(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		x.made = append(x.made, path)
	}
	return file, err
}

// undo removes the files that were made.
func (x *exporter) undo() error {
	var errs []error
	for _, path := range x.made {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}
