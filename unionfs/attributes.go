package unionfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Attributes of overlay in a layer (Documentation/filesystems/overlayfs.rst).
const (
	overlayPrefix   = "trusted.overlay."
	overlayOpaque   = "trusted.overlay.opaque"
	overlayRedirect = "trusted.overlay.redirect"
	overlayMetacopy = "trusted.overlay.metacopy"
	overlayWhiteout = "trusted.overlay.whiteout"
)

// selinuxLabel belongs to the machine: the policy labels the app's root by where it lies.
const selinuxLabel = "security.selinux"

// topAttributes sets the directory dst to the owner, mode, extended attributes
// and times of top's own directory.
func topAttributes(dst string, top Layer) error {
	out, err := os.OpenFile(dst, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := os.OpenFile(top.Dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := folderAttributes(out, in); err != nil {
		return fmt.Errorf("make the root's directory like that of layer %s: %w", top.Dir, err)
	}
	return nil
}

// folderAttributes sets an open directory to the owner, mode, extended attributes and times of another.
func folderAttributes(out, in *os.File) error {
	e := &entry{name: ".", dir: in}
	if err := unix.Fstat(int(in.Fd()), &e.stat); err != nil {
		return &os.PathError{Op: "stat", Path: in.Name(), Err: err}
	}
	c := &copier{markers: dropped}
	return c.attributes(e, int(out.Fd()))
}

// attributes sets the copy of e in out to the owner, mode, extended attributes and times of e.
func (c *copier) attributes(e *entry, out int) error {
	// The owner first: chown(2) clears set-user-ID bits and security.capability.
	if err := unix.Fchownat(out, e.name, int(e.stat.Uid), int(e.stat.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set owner: %w", err)
	}
	if e.stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(out, e.name, e.stat.Mode&0o7777, 0); err != nil {
			return fmt.Errorf("set mode: %w", err)
		}
	}
	if err := c.xattrs(e, out); err != nil {
		return err
	}
	times := []unix.Timespec{e.stat.Atim, e.stat.Mtim}
	if err := unix.UtimesNanoAt(out, e.name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set times: %w", err)
	}
	return nil
}

func (c *copier) xattrs(e *entry, out int) error {
	names, err := xattrsOf(e, c.markers)
	if err != nil {
		return err
	}
	from, to := procPath(int(e.dir.Fd()), e.name), procPath(out, e.name)
	for _, name := range names {
		value, err := getXattr(from, name)
		if err == nil {
			err = unix.Lsetxattr(to, name, value, 0)
		}
		if err != nil {
			return fmt.Errorf("set extended attribute %s: %w", name, err)
		}
	}
	return nil
}

// xattrsOf returns the extended attributes of e that are copied. An attribute that has a meaning that only overlay
// knows is an error, unless all of overlay's are dropped.
func xattrsOf(e *entry, m markers) (copied []string, err error) {
	names, err := listXattrs(procPath(int(e.dir.Fd()), e.name))
	if err != nil {
		return nil, fmt.Errorf("list extended attributes: %w", err)
	}
	for _, name := range names {
		switch overlays := strings.HasPrefix(name, overlayPrefix); {
		case m == dropped && (overlays || name == selinuxLabel):
		case name == overlayRedirect || name == overlayMetacopy || name == overlayWhiteout:
			return nil, fmt.Errorf("extended attribute %s has a meaning that only overlay knows", name)
		case m == verbatim || !overlays:
			copied = append(copied, name)
		}
	}
	return copied, nil
}

// procPath names a file of a directory, for calls that have no at-form: the
// last component is the only one that could be a symbolic link, and the l-calls do not
// follow it.
func procPath(dir int, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
}

func listXattrs(path string) ([]string, error) {
	buf := make([]byte, 256)
	n, err := unix.Llistxattr(path, buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, 64<<10) // XATTR_LIST_MAX
		n, err = unix.Llistxattr(path, buf)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil || n == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00"), nil
}

func getXattr(path, name string) ([]byte, error) {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, name, buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, 64<<10) // XATTR_SIZE_MAX
		n, err = unix.Lgetxattr(path, name, buf)
	}
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// isOpaque reports whether e is a directory that hides the directories below it.
func isOpaque(e *entry) bool {
	if !e.isDir() {
		return false
	}
	value, err := getXattr(procPath(int(e.dir.Fd()), e.name), overlayOpaque)
	return err == nil && string(value) == "y"
}
