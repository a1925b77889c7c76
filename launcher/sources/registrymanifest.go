package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// acceptedManifests is the header by which a registry returns a manifest or an index.
func acceptedManifests() string {
	return strings.Join([]string{
		string(types.OCIImageIndex), string(types.DockerManifestList),
		string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
	}, ",")
}

// askManifest asks for the manifest or index that a tag or digest means. The caller closes the body.
func (r *repository) askManifest(ctx context.Context, method, which string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.url("manifests", which), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", acceptedManifests())
	response, err := r.client.Do(request)
	if err != nil {
		return nil, answerError(err)
	}
	if err := transport.CheckError(response, http.StatusOK); err != nil {
		_ = response.Body.Close()
		return nil, answerError(err)
	}
	return response, nil
}

// headManifest returns the digest of what a tag or digest means, if the registry says it without the document.
func (r *repository) headManifest(ctx context.Context, which string) (digest string, ok bool) {
	response, err := r.askManifest(ctx, http.MethodHead, which)
	if err != nil {
		return "", false // a GET says why
	}
	defer response.Body.Close()
	found, err := v1.NewHash(response.Header.Get("Docker-Content-Digest"))
	if _, wantErr := v1.NewHash(which); wantErr == nil && found.String() != which {
		return "", false
	}
	return found.String(), err == nil
}

// getManifest gets the document that a tag or digest means into a file without a name, open at its start.
func (f *Fetcher) getManifest(ctx context.Context, r *repository, which string) (v1.Descriptor, *os.File, error) {
	response, err := r.askManifest(ctx, http.MethodGet, which)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	defer response.Body.Close()
	sum := sha256.New()
	sums := []io.Writer{sum}
	want, wantErr := v1.NewHash(which) // none of a tag
	var named hash.Hash
	if wantErr == nil {
		if named, err = v1.Hasher(want.Algorithm); err != nil {
			return v1.Descriptor{}, nil, err
		}
		sums = append(sums, named)
	}
	file, size, err := f.spool(io.TeeReader(response.Body, io.MultiWriter(sums...)))
	if err != nil {
		return v1.Descriptor{}, nil, fmt.Errorf("read manifest: %w", err)
	}
	if named != nil && hex.EncodeToString(named.Sum(nil)) != want.Hex {
		_ = file.Close()
		return v1.Descriptor{}, nil, fmt.Errorf("read manifest: digest %s:%x, not %s", want.Algorithm, named.Sum(nil), which)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // "" of a server without one
	return v1.Descriptor{
		MediaType: types.MediaType(kind), Size: size,
		Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))},
	}, file, nil
}

// spool writes what in reads into a file without a name in the cache, and returns it open at its start with its size. A
// server may take its time for a document, which takes no memory meanwhile.
func (f *Fetcher) spool(in io.Reader) (file *os.File, size int64, err error) {
	if err := os.MkdirAll(f.Cache, 0o700); err != nil {
		return nil, 0, err
	}
	if file, err = os.CreateTemp(f.Cache, ".document-"); err != nil {
		return nil, 0, err
	}
	err = os.Remove(file.Name())
	if err == nil {
		size, err = io.Copy(file, in)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, size, nil
}

// manifest gets the manifest of an image: of an index, that of the image for this machine.
func (f *Fetcher) manifest(ctx context.Context, r *repository, ref name.Reference) (*v1.Manifest, error) {
	found, first, err := f.getManifest(ctx, r, ref.Identifier())
	if err != nil {
		return nil, err
	}
	defer first.Close()
	top := found.Digest
	open := func(_, digest string, _ int64) (*os.File, func(), error) {
		file := first
		if digest != top.String() {
			var err error
			if _, file, err = f.getManifest(ctx, r, digest); err != nil {
				return nil, nil, err
			}
		}
		release, err := f.Memory.document(ctx)
		if err != nil {
			_ = file.Close()
			return nil, nil, err
		}
		return file, func() { release(); _ = file.Close() }, nil
	}
	openConfig := func(what, digest string, size int64) (*os.File, func(), error) {
		file, done, err := f.get(ctx, r.download(what, digest, size))
		if err != nil {
			return nil, nil, err
		}
		release, err := f.Memory.document(ctx)
		if err != nil {
			done()
			return nil, nil, err
		}
		return file, func() { release(); done() }, nil
	}
	manifest, err := manifestIn(found, open, openConfig)
	if err != nil {
		return nil, err
	}
	return withoutExtras(manifest), nil
}

// withoutExtras returns what an import needs of a manifest, which it keeps until its end.
func withoutExtras(m *v1.Manifest) *v1.Manifest {
	needed := func(d v1.Descriptor) v1.Descriptor {
		return v1.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
	}
	small := &v1.Manifest{Config: needed(m.Config)}
	for _, layer := range m.Layers {
		small.Layers = append(small.Layers, needed(layer))
	}
	return small
}

// manifestIn reads a document that is a manifest, or an index that leads to one.
func manifestIn(found v1.Descriptor, open, openConfig blobs) (*v1.Manifest, error) {
	for range maxIndexes {
		switch {
		case found.MediaType.IsSchema1():
			return nil, fmt.Errorf("media type %q, of images before Docker 1.10, which have no layers of OCI", found.MediaType)
		case !found.MediaType.IsIndex():
			return readDocument("manifest", found, open, v1.ParseManifest)
		}
		index, err := readDocument("index", found, open, v1.ParseIndexManifest)
		if err != nil {
			return nil, err
		}
		if found, err = choose(index.Manifests, open, openConfig); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d indexes, each in the one before, lead to the image", maxIndexes)
}

// maxUndescribed is how many images without a platform an index of a registry may have: for each, a manifest and a
// configuration are downloaded.
const maxUndescribed = 64

// choose returns the entry of an index that fits this machine best. Of several without a platform, their
// configurations decide.
func choose(list []v1.Descriptor, open, openConfig blobs) (v1.Descriptor, error) {
	here := thisMachine()
	fitting := here.fitting(list)
	unknown := func(d v1.Descriptor) bool { return d.Platform == nil && !d.MediaType.IsIndex() }
	if len(fitting) < 2 || !slices.ContainsFunc(fitting, unknown) {
		return here.first(list)
	}
	if len(fitting) > maxUndescribed {
		return v1.Descriptor{}, fmt.Errorf("the index lists %d images without a platform, more than %d", len(fitting),
			maxUndescribed)
	}
	return here.first(described(fitting, open, openConfig))
}
