package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"

	"kurma.io/stager/launcher/images"
)

// layer is a layer of an image that is imported.
type layer struct {
	file blob
	// from is the registry and the digest of the layer's file; "" for a file on this machine.
	from string
	// granted asks the registry whether it lets the import have the blob.
	granted func() bool
	// open opens the file, and downloads it before unless unneeded says that this is not needed any more: then it returns
	// errUnneeded. Done releases the file, and removes it if it was downloaded.
	open func(unneeded func() bool) (file *os.File, done func(), err error)
}

// localLayer is a layer of a file on this machine, in an archive or a layout.
func localLayer(dir, name string, of blob) layer {
	return layer{file: of, open: func(func() bool) (*os.File, func(), error) {
		file, err := openFile(dir, name)
		if err != nil {
			return nil, nil, err
		}
		return file, func() { _ = file.Close() }, nil
	}}
}

// stack are the layers of an image that are in the store, the lowest first. The store may have a layer that another
// image has brought, perhaps a private one. It counts for this image only if this import has the layer's file, or the
// registry that has brought the file before grants it: who knows a layer's name does not get its content.
type stack struct {
	fetcher *Fetcher
	chain   string // identifies the layers so far: OCI's ChainID, but for the first
	layers  []*images.Image
	kept    []func() // release the layers
}

// release lets the layers be removed that no image needs.
func (s *stack) release() {
	for _, release := range s.kept {
		release()
	}
}

// add puts a layer on top. While it waits for a server, it holds up only imports that would ask the same server for the
// same file.
func (s *stack) add(ctx context.Context, l layer, diffID string) error {
	sum := sha256.Sum256([]byte(s.chain + " " + diffID))
	s.chain = hex.EncodeToString(sum[:])
	if s.brought(l) {
		return nil
	}
	file, done, err := l.open(func() bool { return s.brought(l) })
	if errors.Is(err, errUnneeded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	image, err := s.bring(ctx, file, l.file, diffID)
	if err != nil || l.from == "" {
		return err
	}
	return s.fetcher.remember("blobs", l.from+"\n"+s.chain, image)
}

// brought puts a layer on top that the registry has brought before and grants.
func (s *stack) brought(l layer) bool {
	if l.from == "" {
		return false
	}
	image := s.fetcher.known("blobs", l.from+"\n"+s.chain)
	return image != nil && l.granted() && s.keep(image.ID) == nil
}

// keep puts an image of the store on top.
func (s *stack) keep(id string) error {
	image, release, err := s.fetcher.Store.Keep(id)
	if err != nil {
		return err
	}
	s.layers, s.kept = append(s.layers, image), append(s.kept, release)
	return nil
}

// bring puts a layer of a file on top: one that the store has, or a new one. It works on this machine alone, and
// one process at a time on a layer.
func (s *stack) bring(ctx context.Context, file *os.File, of blob, diffID string) (*images.Image, error) {
	part, err := s.fetcher.lockPart(ctx, s.chain, 0)
	if err != nil {
		return nil, err
	}
	defer removePart(part)
	release, err := s.fetcher.Memory.layer(ctx, file)
	if err != nil {
		return nil, err
	}
	defer release()
	image := s.fetcher.known("layers", s.chain)
	if image != nil && s.keep(image.ID) == nil {
		return image, of.read(ctx, file, diffID, nil)
	}
	for range keepAttempts {
		image, err = s.store(layerManifest(s.chain), func(w *layerWriter) error {
			return of.read(ctx, file, diffID, w.layer)
		})
		if err == nil {
			err = s.keep(image.ID)
		}
		if !errors.Is(err, images.ErrNotFound) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return image, s.fetcher.remember("layers", s.chain, image)
}

// keepAttempts is how often bring imports a layer that is removed before bring has kept it.
const keepAttempts = 3

// store imports an image that write writes, on top of the layers.
func (s *stack) store(manifest []byte, write func(*layerWriter) error) (*images.Image, error) {
	return s.fetcher.Store.Write(manifest, func(image *images.Writer) error {
		w := newLayerWriter(image, s.layers)
		defer w.below.Close()
		return write(w)
	})
}

func shortDigest(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return hex[:min(len(hex), 12)]
}
