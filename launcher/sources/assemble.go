package sources

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"kurma.io/stager/launcher/images"

	"github.com/appc/spec/schema/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Limits of an image of Docker or OCI.
const (
	maxLayers  = 400
	maxConfig  = 8 << 20 // bytes of its configuration, its manifest or an index
	maxIndexes = 4       // that lead from a layout to an image
	maxNames   = 1000    // of all images of an archive or a layout
)

// blobs opens a file of an image by its digest. Done releases the file, and removes it if it was
// downloaded.
type blobs func(what, digest string, size int64) (file *os.File, done func(), err error)

// parts are what an image of Docker or OCI consists of.
type parts struct {
	config func() (*v1.ConfigFile, error) // reads it: no import keeps it while it waits for a server
	layers []layer                        // the lowest first
}

// reference is a name that an image has.
type reference struct{ name, version string }

func (r reference) String() string { return strings.TrimSuffix(r.name+":"+r.version, ":") }

// maxValues is how many objects, lists and members of them a document may have: a few bytes of JSON become hundreds in
// memory. The largest images have some thousands.
const maxValues = 1 << 16

// countValues counts the objects, lists and commas of a document of JSON.
func countValues(document []byte) (n int) {
	inString := false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case !inString && (c == '{' || c == '[' || c == ','):
			n++
		}
	}
	return n
}

// readDocument parses a document of an image: its configuration, its manifest, or an index of images. It compares the
// digest with the bytes that it parses, because the file may change after open has checked it.
func readDocument[T any](what string, of v1.Descriptor, open blobs, parse func(io.Reader) (*T, error)) (*T, error) {
	if of.Size < 0 || of.Size > maxConfig {
		return nil, fmt.Errorf("%s of %d bytes, not 0 to %d", what, of.Size, maxConfig)
	}
	file, done, err := open(what, of.Digest.String(), of.Size)
	if err != nil {
		return nil, err
	}
	defer done()
	data := make([]byte, of.Size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, fmt.Errorf("read image %s: %w", what, err)
	}
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); got != of.Digest.String() {
		return nil, fmt.Errorf("read image %s: digest %s, not %s", what, got, of.Digest)
	}
	if countValues(data) > maxValues {
		return nil, fmt.Errorf("read image %s: more than %d values", what, maxValues)
	}
	document, err := parse(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", what, err)
	}
	return document, nil
}

// partsOf returns the parts of an image; openConfig opens its configuration.
func partsOf(manifest *v1.Manifest, openConfig blobs, layerOf func(v1.Descriptor) layer) (p parts, err error) {
	if kind := manifest.Config.MediaType; !kind.IsConfig() { // registries also keep what is no image, such as charts
		return p, fmt.Errorf("not an image: %q is not the media type of an image's configuration", kind)
	}
	if len(manifest.Layers) > maxLayers {
		return p, fmt.Errorf("%d layers; want at most %d", len(manifest.Layers), maxLayers)
	}
	of := manifest.Config
	p.config = func() (*v1.ConfigFile, error) {
		return readDocument("configuration", of, openConfig, v1.ParseConfigFile)
	}
	for _, d := range manifest.Layers {
		if !isLayer(d.MediaType) {
			return p, fmt.Errorf("media type %q is not a layer's", d.MediaType)
		}
		p.layers = append(p.layers, layerOf(d))
	}
	return p, nil
}

// assemble imports an image of Docker or OCI: its layers that the store lacks, and for each of its names
// an image with its configuration. It returns these.
func (f *Fetcher) assemble(ctx context.Context, p parts, names ...reference) ([]*images.Image, error) {
	config, err := p.config()
	if err != nil {
		return nil, err
	}
	digests := config.RootFS.DiffIDs
	if len(p.layers) != len(digests) || len(p.layers) > maxLayers {
		return nil, fmt.Errorf("%d layers and %d digests of layers; want as many of both, and at most %d", len(p.layers),
			len(digests), maxLayers)
	}
	s := stack{fetcher: f}
	defer s.release()
	for i, l := range p.layers {
		if err := s.add(ctx, l, digests[i].String()); err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", i+1, len(p.layers), err)
		}
	}
	if config, err = p.config(); err != nil {
		return nil, err
	}
	var all []*images.Image
	for _, r := range names {
		image, err := s.top(config, r)
		if err != nil {
			return nil, err
		}
		all = append(all, image)
	}
	return all, nil
}

// top imports the image on top of the layers, which has their configuration and a name.
func (s *stack) top(config *v1.ConfigFile, r reference) (*images.Image, error) {
	if strings.HasPrefix(r.name, "index.docker.io/") { // as package name calls docker.io
		r.name = strings.TrimPrefix(r.name, "index.")
	}
	identifier, err := types.SanitizeACIdentifier(strings.ToLower(r.name))
	if err != nil {
		return nil, fmt.Errorf("make an image name of %q: %w", r.name, err)
	}
	document, err := convert(config, identifier, r.version, s.layers)
	if err != nil {
		return nil, err
	}
	return s.store(document, func(w *layerWriter) error {
		return errors.Join(w.folder("."), w.missingFolder(workingDirectory(config.Config)))
	})
}
