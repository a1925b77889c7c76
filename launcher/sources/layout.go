package sources

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/launcher/images"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layout imports the only image for this machine of an OCI layout.
func (f *Fetcher) layout(ctx context.Context, dir, path string) (*images.Image, error) {
	index := &v1.IndexManifest{} // the layout's only document without a digest
	if err := readJSON(dir, layoutIndex, index); err != nil {
		return nil, fmt.Errorf("read OCI layout: %w", err)
	}
	blob := func(_, digest string, size int64) (*os.File, func(), error) {
		return openBlob(ctx, dir, blobName(digest), digest, size)
	}
	manifest, tag, err := onlyImage(index, blob)
	if err != nil {
		return nil, err
	}
	repository, version := baseName(path), tag
	if ref, err := name.ParseReference(tag); err == nil && strings.Contains(tag, "/") {
		repository, version = ref.Context().Name(), ref.Identifier()
	}
	p, err := partsOf(manifest, blob, repository, version)
	if err != nil {
		return nil, err
	}
	return f.assemble(ctx, p)
}

// blobName is the file of a layout that has the digest.
func blobName(digest string) string {
	algorithm, hex, _ := strings.Cut(digest, ":")
	return filepath.Join("blobs", algorithm, hex)
}

// onlyImage returns the manifest of the image that fits the machine, and its tag. It may be in an index that the
// layout's names.
func onlyImage(index *v1.IndexManifest, open blobs) (manifest *v1.Manifest, tag string, err error) {
	for level := range maxIndexes {
		found, err := fitting(index)
		if err != nil {
			return nil, "", err
		}
		if level == 0 {
			tag = found.Annotations["org.opencontainers.image.ref.name"]
		}
		if !found.MediaType.IsIndex() {
			manifest, err = readDocument("manifest", found, open, v1.ParseManifest)
			return manifest, tag, err
		}
		if index, err = readDocument("index", found, open, v1.ParseIndexManifest); err != nil {
			return nil, "", err
		}
	}
	return nil, "", fmt.Errorf("more than %d indexes, each in the one before, lead to the image", maxIndexes)
}

// fitting returns the only image or index in an index that may be for this machine. An index lists an image once for
// each tag, and also signatures and other artifacts, which are not images.
func fitting(index *v1.IndexManifest) (v1.Descriptor, error) {
	var found []v1.Descriptor
	seen := make(map[v1.Hash]bool)
	for _, d := range index.Manifests {
		isArtifact := d.ArtifactType != "" && !types.MediaType(d.ArtifactType).IsConfig()
		fits := d.Platform == nil || d.Platform.Satisfies(platform()) || d.MediaType.IsIndex()
		if fits && !isArtifact && !seen[d.Digest] {
			found, seen[d.Digest] = append(found, d), true
		}
	}
	if len(found) != 1 {
		return v1.Descriptor{}, fmt.Errorf("%d images for this machine; want one", len(found))
	}
	return found[0], nil
}
