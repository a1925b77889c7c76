package build

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
)

// maxManifest is the size from which on Read refuses a manifest.
const maxManifest = 4 << 20

// Image is what Read finds out about an image file.
type Image struct {
	// ID is the image's ID: "sha512-" and the hash of the tar.
	ID string
	// Compression is "gzip", "bzip2", "xz" or "none".
	Compression string
	// Size is the size of the tar in bytes.
	Size int64
	// Marked says that the tar has an end marker, see Archive.
	Marked bool
	// Manifest is the image's manifest, which Read does not parse.
	Manifest []byte
	// Files is the number of entries in the image's root, the root itself included.
	Files int
}

// Read reads an image file to its end, and calls visit, unless that is nil, for each entry of the
// image's root. Name is the entry's path below the root, "" for the root itself; a hard link's target
// in the header is also such a path. Visit may read the entry's content until it returns.
//
// Anything but one manifest and a folder rootfs in a whole tar, see Archive, is an error, and so is a path that leads
// out of the root. Names are not resolved: a symbolic link and an entry behind it are visited like any other.
func Read(file io.Reader, visit func(name string, h *tar.Header, content io.Reader) error) (Image, error) {
	plain, compression, err := decompress(file)
	if err != nil {
		return Image{}, err
	}
	r := reader{image: Image{Compression: compression}, visit: visit}
	archive := NewArchive(plain)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Image{}, fmt.Errorf("read image: %w", err)
		}
		if err := r.entry(h, archive); err != nil {
			return Image{}, fmt.Errorf("read image: %w", err)
		}
	}
	switch {
	case r.image.Manifest == nil:
		return Image{}, errors.New("read image: no file \"manifest\"")
	case !r.root:
		return Image{}, errors.New("read image: no folder \"rootfs\"")
	}
	r.image.ID, r.image.Size, r.image.Marked = archive.ID(), archive.Size(), archive.Marked()
	return r.image, nil
}

type reader struct {
	image Image
	root  bool // there is a folder rootfs
	visit func(string, *tar.Header, io.Reader) error
}

func (r *reader) entry(h *tar.Header, content io.Reader) error {
	name, err := local(h.Name)
	if err != nil {
		return err
	}
	if name == "manifest" {
		return r.manifest(h, content)
	}
	below, inside := strings.CutPrefix(name+"/", "rootfs/")
	switch {
	case name == "." && h.Typeflag == tar.TypeDir:
		return nil
	case !inside:
		return fmt.Errorf("%q is neither the manifest nor in rootfs", h.Name)
	case name == "rootfs" && h.Typeflag != tar.TypeDir:
		return errors.New("rootfs is not a folder")
	}
	r.root = r.root || name == "rootfs"
	r.image.Files++
	if h.Typeflag == tar.TypeLink {
		target, err := local(h.Linkname)
		rest, ok := strings.CutPrefix(target, "rootfs/")
		if err != nil || !ok {
			return fmt.Errorf("%q is a hard link to %q, which is not in rootfs", h.Name, h.Linkname)
		}
		h.Linkname = rest
	}
	if r.visit == nil {
		return nil
	}
	return r.visit(strings.TrimSuffix(below, "/"), h, content)
}

func (r *reader) manifest(h *tar.Header, content io.Reader) error {
	switch {
	case r.image.Manifest != nil:
		return errors.New("two manifests")
	case h.Typeflag != tar.TypeReg:
		return errors.New("the manifest is not a regular file")
	case h.Size > maxManifest:
		return fmt.Errorf("the manifest has %d bytes, more than %d", h.Size, maxManifest)
	}
	data, err := io.ReadAll(content)
	r.image.Manifest = append([]byte{}, data...)
	return err
}

// local returns a path of the archive without "./" and "//". A path that is absolute or has ".." in
// it is an error.
func local(name string) (string, error) {
	if path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") || strings.Contains(name, "\x00") {
		return "", fmt.Errorf("%q leads out of the image", name)
	}
	return path.Clean(name), nil
}

// decompress returns the tar in an image file, and the name of its compression. A file of no known
// compression is read as a tar.
func decompress(file io.Reader) (io.Reader, string, error) {
	in := bufio.NewReaderSize(file, 256<<10)
	start, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", fmt.Errorf("read image: %w", err)
	}
	var out io.Reader
	var name string
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		name = "gzip"
		out, err = gzip.NewReader(in)
	case bytes.HasPrefix(start, []byte("BZh")):
		name, out, err = "bzip2", bzip2.NewReader(in), nil
	case bytes.HasPrefix(start, []byte("\xfd7zXZ\x00")):
		name = "xz"
		out, err = xz.NewReader(in)
	default:
		return in, "none", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("decompress image: %w", err)
	}
	return out, name, nil
}
