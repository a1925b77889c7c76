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
	"time"

	"kurma.io/stager/manifest"

	"golang.org/x/sys/unix"
)

// Limits of an archive: a few compressed bytes can expand to any number of entries.
const (
	maxManifest    = 4 << 20  // bytes of the image manifest
	maxEntries     = 1 << 20  // entries of any kind
	maxFolderNames = 64 << 20 // bytes of the names of all folders, which are kept until the end

	// maxID is the highest user or group ID. The next number means "no change" to
	// chown(2).
	maxID = 1<<32 - 2

	// The highest device numbers of Linux.
	maxMajor = 1<<12 - 1
	maxMinor = 1<<20 - 1
)

// extract writes an image's manifest and files below dir, which is empty, and
// returns the bytes of its files. Modes, owners, times and extended attributes
// are the archive's. os.Root resolves every name inside rootfs, so names, symlinks and
// hard links of the archive do not reach files outside.
func extract(dir string, archive io.Reader) (int64, error) {
	x, err := newExtractor(dir, archive)
	if err != nil {
		return 0, err
	}
	defer x.root.Close()
	if err := x.all(); err != nil {
		return 0, err
	}
	return x.size, x.finish()
}

func newExtractor(dir string, archive io.Reader) (*extractor, error) {
	rootfs := filepath.Join(dir, rootfsDir)
	if err := os.Mkdir(rootfs, 0o755); err != nil {
		return nil, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(rootfs, &disk); err != nil {
		return nil, fmt.Errorf("get free space: %w", err)
	}
	root, err := os.OpenRoot(rootfs)
	if err != nil {
		return nil, err
	}
	return &extractor{
		dir:     dir,
		root:    root,
		tar:     tar.NewReader(archive),
		free:    int64(disk.Bavail) * disk.Bsize,
		entries: maxEntries,
		names:   maxFolderNames,
		folders: make(map[string]fileTimes),
	}, nil
}

type extractor struct {
	dir  string
	root *os.Root
	tar  *tar.Reader
	free int64 // free bytes of the store's file system at the start
	size int64 // bytes of files so far

	entries, names int // how many more entries and bytes of folder names are allowed

	manifest, rootfs bool // seen

	folders map[string]fileTimes // set last, because changes in a folder change its times
}

// fileTimes are a file's times of access and modification.
type fileTimes [2]unix.Timespec

func (x *extractor) all() error {
	for {
		header, err := x.tar.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if x.entries--; x.entries < 0 {
			return fmt.Errorf("the archive has more than %d entries", maxEntries)
		}
		if err := x.entry(header); err != nil {
			return fmt.Errorf("extract %q: %w", shorten(header.Name), err)
		}
	}
	if !x.manifest {
		return errors.New("not an ACI: no manifest found")
	}
	if !x.rootfs {
		return errors.New("not an ACI: no rootfs found")
	}
	return nil
}

func (x *extractor) entry(header *tar.Header) error {
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
		return x.writeManifest(header)
	case top == rootfsDir && !nested:
		return x.setRoot(header)
	case top == rootfsDir:
		x.rootfs = true
		return x.file(header, inside)
	}
	return errors.New("an ACI has a manifest, rootfs and nothing else")
}

// checkOwner refuses IDs that do not fit into the kernel's 32 bits.
func checkOwner(header *tar.Header) error {
	switch {
	case header.Uid < 0 || header.Uid > maxID:
		return fmt.Errorf("its user ID %d is not within 0 to %d", header.Uid, maxID)
	case header.Gid < 0 || header.Gid > maxID:
		return fmt.Errorf("its group ID %d is not within 0 to %d", header.Gid, maxID)
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

// cleanName refuses names that lead out of the archive, and those that are too long for a
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

func (x *extractor) writeManifest(header *tar.Header) error {
	if x.manifest {
		return errors.New("a second manifest")
	}
	if header.Typeflag != tar.TypeReg || header.Size > maxManifest {
		return fmt.Errorf("want a file of at most %d bytes", maxManifest)
	}
	x.manifest = true
	data, err := io.ReadAll(x.tar)
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

func (x *extractor) file(header *tar.Header, name string) error {
	if header.Typeflag == tar.TypeDir {
		return x.folder(header, name)
	}
	if err := x.clear(name); err != nil {
		return err
	}
	if header.Typeflag == tar.TypeLink {
		return x.hardLink(header, name)
	}
	if err := x.create(header, name); err != nil {
		return err
	}
	if err := x.attributes(header, name); err != nil {
		return err
	}
	return x.times(name, timesOf(header))
}

// folder makes a folder unless it exists. It replaces a file or symlink in its place and
// does not follow the symlink.
func (x *extractor) folder(header *tar.Header, name string) error {
	info, err := x.root.Lstat(name)
	if err != nil || !info.IsDir() {
		if err := x.clear(name); err != nil {
			return err
		}
		if err := x.root.Mkdir(name, 0o700); err != nil {
			return err
		}
	}
	if err := x.attributes(header, name); err != nil {
		return err
	}
	if _, again := x.folders[name]; !again {
		if x.names -= len(name); x.names < 0 {
			return fmt.Errorf("the names of the archive's folders are longer than %d bytes", maxFolderNames)
		}
	}
	x.folders[name] = timesOf(header)
	return nil
}

// clear removes what is in the place of an entry and makes the folders above it.
func (x *extractor) clear(name string) error {
	if err := x.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return x.root.RemoveAll(name)
}

func (x *extractor) hardLink(header *tar.Header, name string) error {
	target, err := cleanName(header.Linkname)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", header.Linkname, err)
	}
	inside, ok := strings.CutPrefix(target, rootfsDir+"/")
	if !ok {
		return fmt.Errorf("hard link to %q, which is not in rootfs", header.Linkname)
	}
	return x.root.Link(inside, name)
}

func (x *extractor) create(header *tar.Header, name string) error {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return x.regular(header, name)
	case tar.TypeSymlink:
		return x.root.Symlink(header.Linkname, name)
	case tar.TypeFifo:
		return x.node(header, name, unix.S_IFIFO)
	case tar.TypeChar:
		return x.node(header, name, unix.S_IFCHR)
	case tar.TypeBlock:
		return x.node(header, name, unix.S_IFBLK)
	}
	return fmt.Errorf("an entry of unknown type %q", header.Typeflag)
}

func (x *extractor) regular(header *tar.Header, name string) error {
	// A sparse file of a few bytes in the archive may claim any size.
	if header.Size > x.free-x.size {
		return fmt.Errorf("%d bytes do not fit: %d are free", header.Size, max(x.free-x.size, 0))
	}
	x.size += header.Size
	out, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, x.tar)
	return errors.Join(err, out.Close())
}

func (x *extractor) node(header *tar.Header, name string, kind uint32) error {
	if header.Devmajor < 0 || header.Devmajor > maxMajor || header.Devminor < 0 || header.Devminor > maxMinor {
		return fmt.Errorf("device %d:%d: want numbers up to %d:%d", header.Devmajor, header.Devminor, maxMajor, maxMinor)
	}
	return x.inParent(name, func(parent int, base string) error {
		dev := unix.Mkdev(uint32(header.Devmajor), uint32(header.Devminor))
		if err := unix.Mknodat(parent, base, kind|0o600, int(dev)); err != nil {
			return fmt.Errorf("make device or FIFO: %w", err)
		}
		return nil
	})
}

// inParent calls do with a descriptor of the folder that has the file, for system calls
// that os.Root does not offer.
func (x *extractor) inParent(name string, do func(parent int, base string) error) error {
	dir, err := x.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(int(dir.Fd()), path.Base(name))
}

// attributes sets owner, mode and extended attributes, in this order, because a change of
// owner clears setuid bits and file capabilities.
func (x *extractor) attributes(header *tar.Header, name string) error {
	if err := x.root.Lchown(name, header.Uid, header.Gid); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeSymlink {
		if err := x.root.Chmod(name, header.FileInfo().Mode()); err != nil {
			return err
		}
	}
	for key, value := range header.PAXRecords {
		attr, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if !ok {
			continue
		}
		if err := x.setXattr(name, attr, value); err != nil {
			return fmt.Errorf("set attribute %q: %w", attr, err)
		}
	}
	return nil
}

func (x *extractor) setXattr(name, attr, value string) error {
	return x.inParent(name, func(parent int, base string) error {
		file := fmt.Sprintf("/proc/self/fd/%d/%s", parent, base)
		return unix.Lsetxattr(file, attr, []byte(value), 0)
	})
}

func (x *extractor) times(name string, times fileTimes) error {
	return x.inParent(name, func(parent int, base string) error {
		if err := unix.UtimesNanoAt(parent, base, times[:], unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set times: %w", err)
		}
		return nil
	})
}

func timesOf(header *tar.Header) fileTimes {
	access := header.AccessTime
	if access.IsZero() {
		access = header.ModTime
	}
	return fileTimes{timespec(access), timespec(header.ModTime)}
}

func timespec(t time.Time) unix.Timespec {
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}

// finish sets the folders' times. It skips a folder that a later entry has replaced.
func (x *extractor) finish() error {
	for name, times := range x.folders {
		info, err := x.root.Lstat(name)
		if err != nil || !info.IsDir() {
			continue
		}
		if err := x.times(name, times); err != nil {
			return fmt.Errorf("extract %q: %w", shorten(name), err)
		}
	}
	return nil
}
