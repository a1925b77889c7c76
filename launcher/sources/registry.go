package sources

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"

	"kurma.io/stager/launcher/images"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

func blobURL(in name.Repository, digest string) string {
	return fmt.Sprintf("%s://%s/v2/%s/blobs/%s", in.Scheme(), in.RegistryStr(), in.RepositoryStr(), digest)
}

// registry imports an image of a registry.
func (f *Fetcher) registry(ctx context.Context, text string) ([]*images.Image, error) {
	ref, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	base := f.transport()
	defer base.CloseIdleConnections()
	image, err := imageFor(thisMachine(), ref, f.options(ctx, base))
	if err != nil {
		return nil, err
	}
	client, err := blobClient(ctx, ref, base, f.keychain())
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read image manifest: %w", err)
	}
	report := f.progress(text)
	defer report(1, 1)
	repository := ref.Context()
	blob := func(what, digest string, size int64) (*os.File, func(), error) {
		return f.get(ctx, download{
			client: client, what: what, digest: digest, size: size, report: ofAll(manifest.Layers, digest, report),
			url: blobURL(repository, digest),
		})
	}
	p, err := partsOf(manifest, blob)
	if err != nil {
		return nil, err
	}
	return f.assemble(ctx, p, reference{cmp.Or(f.Name, repository.Name()), ref.Identifier()})
}

// imageFor returns an image of a registry, or the one for the machine of an index of images.
func imageFor(here machine, ref name.Reference, options []remote.Option) (v1.Image, error) {
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	if !found.MediaType.IsIndex() {
		return found.Image()
	}
	index, err := found.ImageIndex()
	for range maxIndexes {
		if err != nil {
			return nil, err
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			return nil, fmt.Errorf("read image index: %w", err)
		}
		d, err := here.first(manifest.Manifests)
		if err != nil {
			return nil, err
		}
		if !d.MediaType.IsIndex() {
			return index.Image(d.Digest)
		}
		index, err = index.ImageIndex(d.Digest)
	}
	return nil, fmt.Errorf("more than %d indexes, each in the one before, lead to the image", maxIndexes)
}

// options are those of every request to a registry.
func (f *Fetcher) options(ctx context.Context, base http.RoundTripper) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(base), remote.WithAuthFromKeychain(f.keychain()),
		remote.WithUserAgent("kurma-launcher"),
	}
}

func (f *Fetcher) keychain() authn.Keychain {
	if f.Keychain == nil {
		return authn.DefaultKeychain
	}
	return f.Keychain
}

// Digest asks a registry what [HOST/]NAME[:TAG|@DIGEST] means now, and returns the digest of the image or, if the
// registry has the image for several machines, of its index. The registry checks the credentials as for the image
// itself. Docker Hub counts a GET of a manifest as a pull, and no HEAD. A GET follows if HEAD fails, because some
// registries do not answer HEAD, and only GET has an error's text.
func (f *Fetcher) Digest(ctx context.Context, text string) (string, error) {
	ref, err := f.parse(text)
	if err != nil {
		return "", err
	}
	base := f.transport()
	defer base.CloseIdleConnections()
	options := f.options(ctx, base)
	if found, err := remote.Head(ref, options...); err == nil {
		return found.Digest.String(), nil
	}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return "", err
	}
	return found.Digest.String(), nil
}

// ofAll returns a function that reports the progress of a layer as that of all layers. They are whole when the last of
// them is converted, not yet when it is downloaded.
func ofAll(layers []v1.Descriptor, digest string, report func(done, size int64)) func(done, size int64) {
	var before, all int64
	found := false
	for _, layer := range layers {
		found = found || layer.Digest.String() == digest
		if !found {
			before += layer.Size
		}
		all += layer.Size
	}
	if !found { // the configuration
		return nil
	}
	return func(done, _ int64) { report(min(before+done, all-1), all) }
}

// parse parses [HOST/]NAME[:TAG|@DIGEST].
func (f *Fetcher) parse(text string) (name.Reference, error) {
	ref, err := name.ParseReference(text)
	if err != nil {
		return nil, err
	}
	if slices.Contains(f.Insecure, ref.Context().RegistryStr()) {
		return name.ParseReference(text, name.Insecure)
	}
	return ref, nil
}

// blobClient returns a client that the registry lets read the repository.
func blobClient(ctx context.Context, ref name.Reference, base http.RoundTripper,
	keychain authn.Keychain,
) (*http.Client, error) {
	repository := ref.Context()
	auth, err := authn.Resolve(ctx, keychain, repository)
	if err != nil {
		return nil, err
	}
	authorized, err := transport.NewWithContext(ctx, repository.Registry, auth, base,
		[]string{repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: authorized}, nil
}
