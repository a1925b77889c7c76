package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/internal/sparse"

	"golang.org/x/sys/unix"
)

// fileTimes are a file's times of access and modification.
type fileTimes [2]unix.Timespec

func (x *extractor) file(header *tar.Header, name string, content io.Reader) error {
	if header.Typeflag == tar.TypeDir {
		return x.folder(header, name)
	}
	parent, err := x.clear(name)
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return x.regular(header, parent, base, content)
	case tar.TypeLink:
		return x.hardLink(header, name)
	}
	if err := special(header, parent, base); err != nil {
		return err
	}
	if err := attributes(header, parent, base); err != nil {
		return err
	}
	return setTimes(parent, base, timesOf(header))
}

// folder makes a folder unless it exists. It replaces a file or symlink in its place and
// does not follow the symlink.
func (x *extractor) folder(header *tar.Header, name string) error {
	parent, err := x.tree.dir(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if !isFolder(parent, base) {
		if parent, err = x.clear(name); err != nil {
			return err
		}
		if err := unix.Mkdirat(parent, base, 0o700); err != nil {
			return err
		}
	}
	if err := attributesOfFolder(header, parent, base); err != nil {
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

func isFolder(parent int, base string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// clear makes the folders above an entry, removes what is in the entry's place, and returns
// the folder of the entry, see fileTree.dir.
func (x *extractor) clear(name string) (parent int, err error) {
	dir, base := path.Dir(name), path.Base(name)
	if parent, err = x.tree.dir(dir); err != nil {
		return -1, err
	}
	err = unix.Unlinkat(parent, base, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return parent, nil
	case errors.Is(err, unix.EISDIR):
		err = rmtree.Remove(fmt.Sprintf("/proc/self/fd/%d/%s", parent, base))
	}
	if err != nil {
		return -1, err
	}
	x.tree.forget()
	return x.tree.dir(dir)
}

// hardLink makes a hard link in the folder that is cleared for it.
func (x *extractor) hardLink(header *tar.Header, name string) error {
	target, err := cleanName(header.Linkname)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", shorten(header.Linkname), err)
	}
	inside, ok := strings.CutPrefix(target, rootfsDir+"/")
	if !ok {
		return fmt.Errorf("hard link to %q, which is not in rootfs", shorten(header.Linkname))
	}
	if inside == name {
		return errors.New("hard link to itself")
	}
	from, err := x.tree.dir(path.Dir(inside))
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", shorten(header.Linkname), err)
	}
	if from, err = unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := x.tree.dir(path.Dir(name))
	if err != nil {
		return err
	}
	if err := unix.Linkat(from, path.Base(inside), to, path.Base(name), 0); err != nil {
		return fmt.Errorf("hard link to %q: %w", shorten(header.Linkname), err)
	}
	x.links++
	return nil
}

func (x *extractor) regular(header *tar.Header, parent int, base string, content io.Reader) error {
	if header.Size > x.free-x.size {
		return fmt.Errorf("%d bytes do not fit: %d are free", header.Size, max(x.free-x.size, 0))
	}
	x.size += header.Size
	fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), base)
	err = sparse.Write(out, content, x.buffer)
	if err == nil {
		err = setAttributes(header, fd)
	}
	if err == nil {
		err = setTimes(fd, "", timesOf(header))
	}
	return errors.Join(err, out.Close())
}

// special makes a symlink, FIFO or device.
func special(header *tar.Header, parent int, base string) error {
	switch header.Typeflag {
	case tar.TypeSymlink:
		return unix.Symlinkat(header.Linkname, parent, base)
	case tar.TypeFifo:
		return node(header, parent, base, unix.S_IFIFO)
	case tar.TypeChar:
		return node(header, parent, base, unix.S_IFCHR)
	case tar.TypeBlock:
		return node(header, parent, base, unix.S_IFBLK)
	}
	return fmt.Errorf("an entry of unknown type %q", header.Typeflag)
}

func node(header *tar.Header, parent int, base string, kind uint32) error {
	if header.Devmajor < 0 || header.Devmajor > maxMajor || header.Devminor < 0 || header.Devminor > maxMinor {
		return fmt.Errorf("device %d:%d: want numbers up to %d:%d", header.Devmajor, header.Devminor, maxMajor, maxMinor)
	}
	dev := unix.Mkdev(uint32(header.Devmajor), uint32(header.Devminor))
	if err := unix.Mknodat(parent, base, kind|0o600, int(dev)); err != nil {
		return fmt.Errorf("make device or FIFO: %w", err)
	}
	return nil
}

// attributes sets owner, mode and extended attributes of a file that must not be opened. The
// order matters: a change of owner clears setuid bits and file capabilities.
func attributes(header *tar.Header, parent int, base string) error {
	if err := unix.Fchownat(parent, base, header.Uid, header.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(parent, base, modeOf(header), 0); err != nil {
			return err
		}
	}
	file := fmt.Sprintf("/proc/self/fd/%d/%s", parent, base)
	return eachXattr(header, func(attr string, value []byte) error { return unix.Lsetxattr(file, attr, value, 0) })
}

// attributesOfFolder is attributes for a folder, which it opens.
func attributesOfFolder(header *tar.Header, parent int, base string) error {
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setAttributes(header, fd)
}

// setAttributes is attributes for an open file.
func setAttributes(header *tar.Header, fd int) error {
	if err := unix.Fchown(fd, header.Uid, header.Gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, modeOf(header)); err != nil {
		return err
	}
	return eachXattr(header, func(attr string, value []byte) error { return unix.Fsetxattr(fd, attr, value, 0) })
}

// modeOf returns the permission, setuid, setgid and sticky bits as chmod(2) takes them.
func modeOf(header *tar.Header) uint32 { return uint32(header.Mode & 0o7777) }

func eachXattr(header *tar.Header, set func(attr string, value []byte) error) error {
	for key, value := range header.PAXRecords {
		attr, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if !ok {
			continue
		}
		if err := set(attr, []byte(value)); err != nil {
			return fmt.Errorf("set attribute %q: %w", shorten(attr), err)
		}
	}
	return nil
}

// setTimes sets the times of a file in parent, or of parent itself if base is "".
func setTimes(parent int, base string, times fileTimes) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if base == "" {
		flags = unix.AT_EMPTY_PATH
	}
	if err := unix.UtimesNanoAt(parent, base, times[:], flags); err != nil {
		return fmt.Errorf("set times: %w", err)
	}
	return nil
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
		fd, err := x.tree.find(name)
		if err != nil {
			continue
		}
		err = setTimes(fd, "", times)
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("extract %q: %w", shorten(name), err)
		}
	}
	return nil
}
