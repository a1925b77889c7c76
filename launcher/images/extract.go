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

// What an archive may ask of the launcher. A few compressed bytes can stand for
// any number of entries.
const (
	maxManifest    = 4 << 20  // bytes of the image manifest
	maxEntries     = 1 << 20  // entries of any kind
	maxFolderNames = 64 << 20 // bytes of the names of all folders, which are kept until the end

	// maxID is the highest user or group ID; the one above it means "no change"
	// to chown(2).
	maxID = 1<<32 - 2

	// The highest device numbers of Linux.
	maxMajor = 1<<12 - 1
	maxMinor = 1<<20 - 1
)

// extract writes an image's manifest and files below dir, which is empty, and
// returns the bytes of its files. Modes, owners, times and extended attributes
// are the archive's. Every name is looked up inside rootfs by os.Root, so neither
// names nor symlinks nor hard links of the archive reach anything outside.
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
		return nil, fmt.Errorf("ask for free space: %w", err)
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
	free int64 // bytes the store's file system had at the start
	size int64 // bytes of files so far

	entries, names int // how many more entries and bytes of folder names are taken

	manifest, rootfs bool // seen

	folders map[string]fileTimes // set last, as a folder's content changes them
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
			return fmt.Errorf("extract %q: %w", abridge(header.Name), err)
		}
	}
	if !x.manifest {
		return errors.New("it is no image: there is no manifest in it")
	}
	if !x.rootfs {
		return errors.New("it is no image: there is no rootfs in it")
	}
	return nil
}

func (x *extractor) entry(header *tar.Header) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // of git and others; says nothing about files
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
	return errors.New("an image holds a manifest and rootfs, nothing else")
}

// checkOwner refuses IDs that the kernel's 32 bits would turn into others.
func checkOwner(header *tar.Header) error {
	switch {
	case header.Uid < 0 || header.Uid > maxID:
		return fmt.Errorf("its user ID %d is not within 0 to %d", header.Uid, maxID)
	case header.Gid < 0 || header.Gid > maxID:
		return fmt.Errorf("its group ID %d is not within 0 to %d", header.Gid, maxID)
	}
	return nil
}

// abridge shows the beginning of a name.
func abridge(name string) string {
	const enough = 256
	if len(name) > enough {
		return name[:enough] + "…"
	}
	return name
}

// cleanName refuses names that could mean anything outside of the archive, and
// those that no program could open: the folders on their way are counted in
// descriptors when they are made and removed.
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

// folder makes a folder, or takes one that is there already; a file or a
// symlink in its place is replaced, not followed.
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

// clear makes way for an entry and makes the folders above it.
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

// inParent calls do with the descriptor of the folder that holds the file:
// what os.Root has no call for is done relative to that.
func (x *extractor) inParent(name string, do func(parent int, base string) error) error {
	dir, err := x.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(int(dir.Fd()), path.Base(name))
}

// attributes sets owner, mode and extended attributes, in this order: a change of
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

// finish sets the folders' times. A folder that a later entry has replaced is
// passed over.
func (x *extractor) finish() error {
	for name, times := range x.folders {
		info, err := x.root.Lstat(name)
		if err != nil || !info.IsDir() {
			continue
		}
		if err := x.times(name, times); err != nil {
			return fmt.Errorf("extract %q: %w", abridge(name), err)
		}
	}
	return nil
}
