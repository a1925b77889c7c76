package sources

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The annotations of an index that name its images: OCI's has a tag or a whole name; containerd and Docker write the
// whole name beside the tag.
const (
	refAnnotation  = "org.opencontainers.image.ref.name"
	nameAnnotation = "io.containerd.image.name"
)

// layoutImages returns the images of an OCI layout that are for this machine.
func layoutImages(ctx context.Context, dir, path string) ([]archived, error) {
	index := &v1.IndexManifest{} // the layout's only document without a digest
	if err := readJSON(dir, layoutIndex, index); err != nil {
		return nil, fmt.Errorf("read OCI layout: %w", err)
	}
	if n := len(index.Manifests); n > maxNames { // before any is read
		return nil, fmt.Errorf("the layout lists %d images, more than %d", n, maxNames)
	}
	document := func(_, digest string, size int64) (*os.File, func(), error) {
		return openBlob(ctx, dir, blobName(digest), digest, size)
	}
	found, err := imagesOf(described(index.Manifests, document, document))
	if err != nil {
		return nil, err
	}
	var all []archived
	for _, image := range found {
		all = append(all, archived{image.references(path), func() (parts, error) {
			manifest, err := manifestIn(image.Descriptor, document, document)
			if err != nil {
				return parts{}, err
			}
			return partsOf(manifest, document, func(d v1.Descriptor) layer {
				return localLayer(dir, blobName(d.Digest.String()), blob{d.Digest.String(), d.Size})
			})
		}})
	}
	return all, nil
}

// described returns the entries of an index that lists several: where an entry has no platform, with that of the
// image's own configuration, and without those that are no image, such as a signature. It reads each document once. An
// entry that cannot be read stays: its import says why.
func described(list []v1.Descriptor, open, openConfig blobs) []v1.Descriptor {
	if len(list) < 2 {
		return list
	}
	type answer struct {
		platform *v1.Platform
		isImage  bool
	}
	known := make(map[v1.Hash]answer)
	var all []v1.Descriptor
	for _, d := range list {
		if d.Platform != nil || d.MediaType.IsIndex() {
			all = append(all, d)
			continue
		}
		found, isKnown := known[d.Digest]
		if !isKnown {
			manifest, err := readDocument("manifest", d, open, v1.ParseManifest)
			if found.isImage = err != nil || isImage(manifest); err == nil && found.isImage {
				found.platform = platformOf(manifest.Config, openConfig)
			}
			known[d.Digest] = found
		}
		if d.Platform = found.platform; found.isImage {
			all = append(all, d)
		}
	}
	return all
}

// isImage reports whether a manifest is of an image and not of an artifact, which may have an image's configuration but
// none of its layers. An image with one unknown layer is an image: its import says what is wrong.
func isImage(m *v1.Manifest) bool {
	layer := func(d v1.Descriptor) bool { return isLayer(d.MediaType) }
	return m.Config.MediaType.IsConfig() && (len(m.Layers) == 0 || slices.ContainsFunc(m.Layers, layer))
}

// isLayer reports whether a media type is a layer's. The library lacks two of Zstandard: Docker's, which BuildKit has
// written, and OCI's of layers that are not to be distributed. A layer's first bytes say how it is compressed.
func isLayer(kind types.MediaType) bool {
	switch kind {
	case "application/vnd.docker.image.rootfs.diff.tar.zstd",
		"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd":
		return true
	}
	return kind.IsLayer()
}

// platformOf returns the platform that an image's configuration names, nil for none.
func platformOf(config v1.Descriptor, open blobs) *v1.Platform {
	c, err := readDocument("configuration", config, open, v1.ParseConfigFile)
	if err != nil || c.OS == "" || c.Architecture == "" {
		return nil
	}
	return &v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
}

// layoutImage is an image of a layout, or an index of one image for several machines.
type layoutImage struct {
	v1.Descriptor
	names []string // as the annotations have them
}

// imagesOf returns the images that a layout's index lists for this machine. The entries with one name are one image for
// several machines, and so are those without a name, unless they have another name, too.
func imagesOf(list []v1.Descriptor) (found []layoutImage, _ error) {
	here := thisMachine()
	named := make(map[string][]v1.Descriptor)
	var names []string
	for _, d := range list {
		name := cmp.Or(d.Annotations[nameAnnotation], d.Annotations[refAnnotation])
		if name != "" && named[name] == nil {
			names = append(names, name)
		}
		named[name] = append(named[name], d)
	}
	for _, name := range append(names, "") {
		isFound := func(d v1.Descriptor) bool { return name == "" && position(found, d) >= 0 }
		fitting := here.fitting(slices.DeleteFunc(named[name], isFound))
		if len(fitting) > 1 {
			return nil, fmt.Errorf("%d images for this machine have the name %q; want one", len(fitting), name)
		}
		for _, d := range fitting {
			if i := position(found, d); i >= 0 {
				found[i].names = append(found[i].names, name)
			} else {
				found = append(found, layoutImage{d, []string{name}})
			}
		}
	}
	if len(found) == 0 {
		return nil, here.noneOf(list)
	}
	return found, nil
}

func position(found []layoutImage, d v1.Descriptor) int {
	return slices.IndexFunc(found, func(other layoutImage) bool { return other.Digest == d.Digest })
}

// references returns the names of an image in the layout at path: one that is only a tag is of the layout's own name.
func (i layoutImage) references(path string) (all []reference) {
	for _, text := range i.names {
		r := reference{baseName(path), text}
		if ref, err := name.ParseReference(text); err == nil && strings.Contains(text, "/") {
			r = reference{ref.Context().Name(), ref.Identifier()}
		}
		all = append(all, r)
	}
	return all
}

// blobName is the file of a layout that has the digest.
func blobName(digest string) string {
	algorithm, hex, _ := strings.Cut(digest, ":")
	return filepath.Join("blobs", algorithm, hex)
}
