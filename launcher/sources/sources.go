// Package sources brings images into the store from where they are: files, web servers,
// registries, and the archives and layouts that other tools write.
//
//	PATH, file://PATH            an ACI, an archive of `docker save` or an OCI archive, or the folder of
//	                             an OCI layout; of an ACI also PATH.asc
//	http://…, https://…          an ACI, and its signature at the same address with .asc
//	docker://[HOST/]NAME[:TAG]   an image of a registry; also [HOST/]NAME@DIGEST
//
// An image of Docker or OCI becomes an image for each layer, and one on top of them with the
// configuration as its manifest. See convert.go for the files and manifest.go for the manifest.
//
// The cache folder, mode 0700, has
//
//	refs/HASH      the ID of the image that a source has been imported as
//	layers/HASH    the ID of the image that a chain of layers has been imported as
//	blobs/HASH     the same of a chain and the blob from which a registry has brought its last layer
//	parts/HASH     a download that has begun, or nothing for a layer, locked while a process works on it
//	.archive-…     the files of an archive, while it is imported
//	.import-…      an image of a web server with its signature, while it is imported
//
// It can be deleted at any time. An import removes what refs and layers have of images that are gone.
package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/signing"

	"github.com/google/go-containerregistry/pkg/authn"
)

// The schemes of sources.
const (
	fileScheme   = "file://"
	httpScheme   = "http://"
	httpsScheme  = "https://"
	dockerScheme = "docker://"
)

// Fetcher brings images into a store. Several may use the same store and cache, also in several
// processes.
type Fetcher struct {
	Store *images.Store
	Ring  signing.KeyRing // that is trusted, for signatures of ACIs
	Cache string          // folder; it is made if it is missing
	// MaxSize is the largest number of bytes of a file that is downloaded, and of all files together in an archive of
	// docker save or OCI.
	MaxSize int64
	// Insecure lists the registries, HOST or HOST:PORT, that are asked by HTTP where they do not answer by TLS. A
	// registry on the loopback device always is; no other gets a request by HTTP, or a password.
	Insecure []string
	// Hosts is the folder of the registries' mirrors and authorities, REGISTRY/hosts.toml in containerd's format; "" for
	// none.
	Hosts string
	// Keychain has the credentials for the registry that an image names, which its mirrors do not get; nil for those of
	// `docker login` and `skopeo login`, by the names of registries and mirrors.
	Keychain authn.Keychain
	// Name is the name that images of registries get; "" for HOST/NAME. With a name, an image has the same ID from each
	// registry and repository if it is imported by its digest.
	Name string
	// Memory is what all Fetchers of the process share; nil for the only one.
	Memory *Memory
	// Progress returns a function that is called with the bytes that were read of the named
	// thing, and of how many; either may be nil. The two are equal in the last call, also after an error.
	Progress func(what string) func(done, size int64)

	attempts int  // of a download, for tests; 0 for the default
	pace     pace // that servers must keep, for tests; none for the default
}

// Is reports whether a reference to an image is a source, with a scheme, and not a name or ID.
func Is(ref string) bool {
	for _, scheme := range []string{fileScheme, httpScheme, httpsScheme, dockerScheme} {
		if strings.HasPrefix(ref, scheme) {
			return true
		}
	}
	return false
}

// Absolute returns a reference that means the same in every working folder.
func Absolute(ref string) string {
	path, isFile := strings.CutPrefix(ref, fileScheme)
	if !isFile {
		return ref
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return ref
	}
	return fileScheme + whole
}

// OfRegistry returns the source that docker.io/NAME and HOST:PORT/NAME mean, each with [:TAG] or @DIGEST, where
// neither an image nor a file has this name. ok is false for all other names.
func OfRegistry(ref string) (source string, ok bool) {
	host, name, _ := strings.Cut(ref, "/")
	_, port, err := net.SplitHostPort(host)
	if _, portErr := strconv.ParseUint(port, 10, 16); name == "" ||
		host != "docker.io" && errors.Join(err, portErr) != nil {
		return "", false
	}
	return dockerScheme + ref, true
}

// Known returns the image that a source was imported as, nil if the store does not have it or the source is a file that
// has changed since. It asks no server.
func (f *Fetcher) Known(ref string) *images.Image {
	key, err := f.refKey(ref)
	if err != nil {
		return nil
	}
	return f.known("refs", key)
}

// Import brings the image of a source, or of a file's path, into the store, and returns it, by the first of its names.
// A path without a file may be that of OfRegistry. A server is asked whether it has another one now. A file of several
// images is an error. After an error the store may have some of the image's layers, and the cache the start of a
// download, unless ctx has ended.
func (f *Fetcher) Import(ctx context.Context, ref string) (*images.Image, error) {
	all, err := f.importFrom(ctx, ref, true)
	if err != nil {
		return nil, err
	}
	return all[0][0], nil
}

// ImportAll is Import for each image of a file and each of its names, which are images of the store. After an error the
// store may have some of them.
func (f *Fetcher) ImportAll(ctx context.Context, ref string) ([]*images.Image, error) {
	all, err := f.importFrom(ctx, ref, false)
	return slices.Concat(all...), err
}

// importFrom imports the images of a source, with one the only one, and returns what each is by each of its names.
func (f *Fetcher) importFrom(ctx context.Context, ref string, one bool) ([][]*images.Image, error) {
	if source, ok := OfRegistry(ref); ok && !exists(ref) {
		ref = source
	}
	key, err := f.refKey(ref)
	if err != nil {
		return nil, err
	}
	release, err := f.useCache()
	if err != nil {
		return nil, fmt.Errorf("use cache: %w", err)
	}
	defer release()
	all, err := f.fetch(ctx, ref, one)
	if err != nil {
		return nil, err
	}
	f.forgetGone()
	if len(all) > 1 {
		return all, nil // the source means none of them
	}
	return all, f.remember("refs", key, all[0][0])
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (f *Fetcher) fetch(ctx context.Context, ref string, one bool) ([][]*images.Image, error) {
	var names []*images.Image
	var err error
	switch {
	case strings.HasPrefix(ref, dockerScheme):
		names, err = f.registry(ctx, strings.TrimPrefix(ref, dockerScheme))
	case strings.HasPrefix(ref, httpScheme), strings.HasPrefix(ref, httpsScheme):
		var image *images.Image
		ref, image, err = f.web(ctx, ref)
		names = []*images.Image{image}
	default:
		return f.file(ctx, strings.TrimPrefix(ref, fileScheme), one)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // rather than what it has interrupted
	}
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", ref, err)
	}
	return [][]*images.Image{names}, nil
}

// refKey names a source in the cache. That of a file changes with the file.
func (f *Fetcher) refKey(ref string) (string, error) {
	if strings.HasPrefix(ref, dockerScheme) || strings.HasPrefix(ref, httpScheme) || strings.HasPrefix(ref, httpsScheme) {
		return ref, nil
	}
	path, err := filepath.Abs(strings.TrimPrefix(ref, fileScheme))
	if err != nil {
		return "", err
	}
	key := path
	for _, file := range []string{path, path + ".asc", filepath.Join(path, "index.json")} {
		if info, err := os.Stat(file); err == nil {
			key += fmt.Sprintf("\n%s %d %d", file, info.Size(), info.ModTime().UnixNano())
		}
	}
	return key, nil
}

// known returns the image that the cache has noted, nil if there is none in the store.
func (f *Fetcher) known(kind, key string) *images.Image {
	id, err := os.ReadFile(f.cached(kind, key))
	if err != nil {
		return nil
	}
	image, err := f.Store.Get(string(id))
	if err != nil {
		return nil
	}
	return image
}

// remember notes an image in the cache.
func (f *Fetcher) remember(kind, key string, image *images.Image) error {
	path := f.cached(kind, key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cache image: %w", err)
	}
	if err := jsonfile.Replace(path, []byte(image.ID)); err != nil {
		return fmt.Errorf("cache image: %w", err)
	}
	return nil
}

func (f *Fetcher) cached(kind, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(f.Cache, kind, hex.EncodeToString(sum[:]))
}

func (f *Fetcher) progress(what string) func(done, size int64) {
	if f.Progress != nil {
		if report := f.Progress(what); report != nil {
			return report
		}
	}
	return func(int64, int64) {}
}
