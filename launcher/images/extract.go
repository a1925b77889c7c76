package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"kurma.io/stager/build"
	"kurma.io/stager/internal/sparse"
	"kurma.io/stager/manifest"
	"kurma.io/stager/spec"

	"golang.org/x/sys/unix"
)

// Limits of an archive: a few compressed bytes can expand to any number of entries.
const (
	maxManifest    = 4 << 20  // bytes of the image manifest
	maxEntries     = 1 << 20  // entries of any kind
	maxFolderNames = 64 << 20 // bytes of the names of all folders, which are kept until the end

	// The highest device numbers of Linux.
	maxMajor = 1<<12 - 1
	maxMinor = 1<<20 - 1
)

// extract writes an image's manifest and files below dir, which is empty, and
// returns its ID and a record with the bytes of its files. Modes, owners, times and extended attributes
// are the archive's. A fileTree resolves every name inside rootfs, so names, symlinks and
// hard links of the archive do not reach files outside. build.Extract says why there are two extractors.
func extract(dir string, in *Stream) (id string, record Record, err error) {
	x, err := newExtractor(dir)
	if err != nil {
		return "", Record{}, err
	}
	defer x.tree.close()
	archive, err := x.all(in)
	if err == nil {
		err = x.finish()
	}
	if err != nil {
		return "", Record{}, err
	}
	return archive.ID(), Record{Size: x.size, Inodes: x.inodes(), Unmarked: !archive.Marked()}, nil
}

func newExtractor(dir string) (*extractor, error) {
	rootfs := filepath.Join(dir, rootfsDir)
	if err := os.Mkdir(rootfs, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chmod(rootfs, 0o755); err != nil { // whatever the umask
		return nil, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(rootfs, &disk); err != nil {
		return nil, fmt.Errorf("get free space: %w", err)
	}
	tree, err := openTree(rootfs)
	if err != nil {
		return nil, err
	}
	return &extractor{
		dir:     dir,
		tree:    tree,
		buffer:  make([]byte, sparse.BufferSize),
		free:    int64(disk.Bavail) * disk.Bsize,
		entries: maxEntries,
		names:   maxFolderNames,
		folders: make(map[string]fileTimes),
	}, nil
}

type extractor struct {
	dir    string
	tree   *fileTree
	buffer []byte
	free   int64 // free bytes of the store's file system at the start
	size   int64 // bytes of files so far

	links          int // names of files that have another
	entries, names int // how many more entries and bytes of folder names are allowed

	manifest, rootfs bool // seen

	folders map[string]fileTimes // set last, because changes in a folder change its times
}

// inodes returns how many the entries so far have.
func (x *extractor) inodes() int64 { return int64(maxEntries - x.entries - x.links) }

// all extracts all entries of an archive, which it returns.
func (x *extractor) all(in *Stream) (*build.Archive, error) {
	archive := build.NewArchive(in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return archive, x.check()
		}
		if err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		content, err := in.Content(header, archive)
		if err == nil {
			err = x.extract(header, content)
		}
		if err != nil {
			return nil, fmt.Errorf("extract %q: %w", shorten(header.Name), err)
		}
	}
}

// check returns an error if the entries are not those of an image.
func (x *extractor) check() error {
	if !x.manifest {
		return errors.New("not an ACI: no manifest found")
	}
	if !x.rootfs {
		return errors.New("not an ACI: no rootfs found")
	}
	return nil
}

// extract extracts an entry of the archive.
func (x *extractor) extract(header *tar.Header, content io.Reader) error {
	if x.entries--; x.entries < 0 {
		return fmt.Errorf("the archive has more than %d entries", maxEntries)
	}
	x.tree.implied++
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // git and others write one; it is not about files
	}
	name, err := cleanName(header.Name)
	if err != nil {
		return err
	}
	if err := checkOwner(header); err != nil {
		return err
	}
	top, inside, nested := strings.Cut(name, "/")
	switch {
	case name == "." && header.Typeflag == tar.TypeDir:
		return nil
	case name == manifestFile:
		return x.writeManifest(header, content)
	case top == rootfsDir && !nested:
		return x.setRoot(header)
	case top == rootfsDir:
		x.rootfs = true
		return x.file(header, inside, content)
	}
	return errors.New("an ACI has a manifest, rootfs and nothing else")
}

// checkOwner refuses IDs that do not fit into the kernel's 32 bits.
func checkOwner(header *tar.Header) error {
	switch {
	case header.Uid < 0 || header.Uid > spec.MaxID:
		return fmt.Errorf("user ID %d is not within 0 to %d", header.Uid, int64(spec.MaxID))
	case header.Gid < 0 || header.Gid > spec.MaxID:
		return fmt.Errorf("group ID %d is not within 0 to %d", header.Gid, int64(spec.MaxID))
	}
	return nil
}

// shorten returns a name, or its beginning if it is long.
func shorten(name string) string {
	const enough = 256
	if len(name) > enough {
		return name[:enough] + "…"
	}
	return name
}

// cleanName refuses names that lead out of the archive, and names that are too long for a
// system call: each folder on the way to such a file would take a descriptor when it is
// made or removed.
func cleanName(name string) (string, error) {
	if len(name) >= unix.PathMax {
		return "", fmt.Errorf("a path of %d bytes, more than Linux takes", len(name))
	}
	if path.IsAbs(name) {
		return "", errors.New("an absolute path")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("a path with \"..\"")
		}
	}
	return path.Clean(name), nil
}

func (x *extractor) writeManifest(header *tar.Header, content io.Reader) error {
	if x.manifest {
		return errors.New("a second manifest")
	}
	if header.Typeflag != tar.TypeReg || header.Size > maxManifest {
		return fmt.Errorf("want a file of at most %d bytes", maxManifest)
	}
	x.manifest = true
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if _, err := manifest.DecodeImage(data); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(x.dir, manifestFile), data, 0o600)
}

func (x *extractor) setRoot(header *tar.Header) error {
	if header.Typeflag != tar.TypeDir {
		return errors.New("rootfs is not a folder")
	}
	x.rootfs = true
	return x.folder(header, ".")
}
