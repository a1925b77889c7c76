package sources

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/internal/sparse"
	"kurma.io/stager/launcher/images"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// The files by which an archive or folder is recognized.
const (
	dockerManifest = "manifest.json"
	layoutIndex    = "index.json"
	layoutFile     = "oci-layout"
)

// file imports an ACI, an archive or a layout, see importFrom.
func (f *Fetcher) file(ctx context.Context, path string, one bool) ([][]*images.Image, error) {
	if path == "" {
		return nil, errors.New("import: the source names no file")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	kind := ""
	if info.IsDir() {
		kind = layoutIndex
	} else if info.Mode().IsRegular() {
		if kind, err = recognize(ctx, path); err != nil {
			return nil, fmt.Errorf("import %s: %w", path, err)
		}
	}
	if kind == "" {
		report := f.progress(filepath.Base(path))
		defer report(1, 1)
		image, err := f.Store.Import(ctx, path, f.Ring, report)
		return [][]*images.Image{{image}}, err
	}
	all, err := f.converted(ctx, path, kind, info.IsDir(), one)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", path, err)
	}
	return all, nil
}

// archived is an image of Docker or OCI in a file.
type archived struct {
	names []reference // one at least
	parts func() (parts, error)
}

// converted imports the images of Docker or OCI in an archive or an unpacked folder.
func (f *Fetcher) converted(ctx context.Context, path, kind string, unpacked, one bool) ([][]*images.Image, error) {
	dir := path
	if !unpacked {
		var err error
		if dir, err = f.extract(ctx, path, kind); err != nil {
			return nil, err
		}
		defer func() { _ = rmtree.Remove(dir) }() // it is in the cache, which can be deleted
	}
	read := layoutImages
	if kind == dockerManifest {
		read = dockerArchive
	}
	found, err := read(ctx, dir, path)
	if err == nil && one && len(found) > 1 {
		err = fmt.Errorf("%d images; import the file, and name one, such as %q and %q", len(found), found[0].names[0],
			found[1].names[0])
	}
	if err != nil {
		return nil, err
	}
	var all [][]*images.Image
	for _, image := range found {
		p, err := image.parts()
		var names []*images.Image
		if err == nil {
			names, err = f.assemble(ctx, p, image.names...)
		}
		if err != nil && len(found) > 1 {
			err = fmt.Errorf("image %q: %w", image.names[0], err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, names)
	}
	return all, nil
}

// recognize returns the name of the file that identifies an archive's format, "" for an ACI and for unknown formats.
func recognize(ctx context.Context, path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	in, err := images.Decompress(images.Until(ctx, file))
	if err != nil {
		return "", nil // the import says what is wrong
	}
	kind := ""
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if err != nil {
			return kind, nil // the same
		}
		switch first, _, _ := strings.Cut(inRoot(header.Name), "/"); first {
		case "manifest", rootfs:
			return "", nil
		case layoutFile, layoutIndex:
			kind = layoutIndex
		case dockerManifest:
			return dockerManifest, nil // newer Docker writes both
		}
	}
}

// extract extracts the files of an archive into a folder in the cache; what else is in it is not part
// of an image. Links of older archives of Docker are followed when they name a layer.
func (f *Fetcher) extract(ctx context.Context, path, kind string) (dir string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	in, err := images.Decompress(images.Until(ctx, file))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(f.Cache, 0o700); err != nil {
		return "", err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(f.Cache, &disk); err != nil {
		return "", fmt.Errorf("get free space: %w", err)
	}
	if dir, err = os.MkdirTemp(f.Cache, ".archive-"); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err == nil {
		err = f.fill(root, tar.NewReader(in), kind, int64(disk.Bavail)*disk.Bsize)
		_ = root.Close()
	}
	if err != nil {
		_ = rmtree.Remove(dir)
		return "", err
	}
	return dir, nil
}

// fill extracts an archive into a folder, whose file system has so many free bytes.
func (f *Fetcher) fill(root *os.Root, archive *tar.Reader, kind string, free int64) error {
	const (
		maxFiles   = 4 * maxLayers
		maxFolders = 1 << 12 // on the ways to all files, beyond one for each
	)
	left := min(f.MaxSize, free)
	files, folders := 0, 0
	return eachEntry(archive, func(header *tar.Header, name string) error {
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeSymlink && header.Typeflag != tar.TypeLink ||
			name == "." {
			return nil
		}
		if header.Typeflag == tar.TypeSymlink && kind == layoutIndex {
			return fmt.Errorf("%q: a link in an OCI layout", name)
		}
		if files++; files > maxFiles {
			return fmt.Errorf("the archive has more than %d files", maxFiles)
		}
		if folders += strings.Count(name, "/") - 1; folders > maxFolders {
			return fmt.Errorf("more than %d folders are on the way to the archive's files", maxFolders)
		}
		if sparse.Is(header) {
			return fmt.Errorf("%q: a sparse file, which no archive of an image has", name)
		}
		if left -= header.Size; left < 0 {
			return fmt.Errorf("the archive has more bytes than maxImageSize in the configuration, %d, or than are free, %d",
				f.MaxSize, free)
		}
		return extractEntry(root, header, name, archive)
	})
}

// extractEntry makes a file or a link.
func extractEntry(root *os.Root, header *tar.Header, name string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return root.Link(inRoot(header.Linkname), name)
	}
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// openFile opens a regular file of a layout, which may be another user's folder. O_NONBLOCK does not wait for a FIFO's
// writer.
func openFile(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// openBlob opens a file of a layout and checks it.
func openBlob(ctx context.Context, dir, name, digest string, size int64) (*os.File, func(), error) {
	file, err := openFile(dir, name)
	if err != nil {
		return nil, nil, err
	}
	if err := check(ctx, download{digest: digest, size: size}, file); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return file, func() { _ = file.Close() }, nil
}

// dockerImage is an image in the manifest of `docker save`.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// dockerArchive returns the images that `docker save` has written.
func dockerArchive(_ context.Context, dir, path string) ([]archived, error) {
	var list []dockerImage
	if err := readJSON(dir, dockerManifest, &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the archive has no image")
	}
	var all []archived
	count := 0
	for _, image := range list {
		if count += max(len(image.RepoTags), 1); count > maxNames {
			return nil, fmt.Errorf("the archive's images have more than %d names", maxNames)
		}
		a := archived{parts: func() (parts, error) { return image.parts(dir) }}
		for _, tag := range image.RepoTags {
			ref, err := name.ParseReference(tag)
			if err != nil {
				return nil, err
			}
			a.names = append(a.names, reference{ref.Context().Name(), ref.Identifier()})
		}
		if len(a.names) == 0 {
			a.names = []reference{{name: baseName(path)}}
		}
		all = append(all, a)
	}
	return all, nil
}

// parts returns the image's parts in the folder of the archive.
func (i dockerImage) parts(dir string) (parts, error) {
	p := parts{config: func() (*v1.ConfigFile, error) {
		config := &v1.ConfigFile{}
		return config, readJSON(dir, i.Config, config)
	}}
	for _, file := range i.Layers {
		p.layers = append(p.layers, localLayer(dir, file, blob{size: -1})) // its content has a digest in the configuration
	}
	return p, nil
}

// readJSON reads a document of an archive or a layout.
func readJSON(dir, name string, v any) error {
	file, err := openFile(dir, name)
	if err != nil {
		return err
	}
	defer file.Close()
	in := &io.LimitedReader{R: file, N: maxConfig + 1}
	if err = json.NewDecoder(in).Decode(v); in.N == 0 {
		err = fmt.Errorf("more than %d bytes", maxConfig)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// baseName is the name of an image that has none, from its file or folder.
func baseName(path string) string {
	if full, err := filepath.Abs(path); err == nil { // a folder may be "."
		path = full
	}
	base := filepath.Base(path)
	for _, suffix := range []string{".gz", ".xz", ".bz2", ".zst", ".tar", ".oci"} {
		base = strings.TrimSuffix(base, suffix)
	}
	return base
}
