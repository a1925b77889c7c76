package copies

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"kurma.io/stager/internal/sparse"
	"kurma.io/stager/internal/thread"
	"kurma.io/stager/spec"

	"golang.org/x/sys/unix"
)

// Unpack makes the files of a tar archive in the target's folder, with their owners and modes, and regular files with
// their times; folders that exist stay as they are, except NewFolder's. SetID keeps the bits setuid and setgid, which
// are dropped otherwise. It calls warn for each file that is left out. An archive without its end marker is an error,
// after which the files that it has are there.
func (t *Target) Unpack(r io.Reader, setID bool, warn func(string)) error {
	if t.users == nil {
		return t.unpack(r, setID, warn)
	}
	// The kernel has no number for a new file of the caller's own user there (idmapped mounts).
	return thread.As(t.users.HostID, func() error { return t.unpack(r, setID, warn) })
}

func (t *Target) unpack(r io.Reader, setID bool, warn func(string)) error {
	u := &unpacker{
		folder: int(t.folder.Fd()), users: t.users, modes: 0o1777, warn: warn, checked: t.checked, fresh: t.fresh, fd: -1,
	}
	if setID {
		u.modes = 0o7777
	}
	defer u.forget()
	counted := &counter{in: r}
	in := tar.NewReader(counted)
	for {
		counted.zeros = 0
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			if counted.zeros < endMarker {
				return errors.New("read archive: no end marker: the archive may be incomplete")
			}
			_, err := io.Copy(io.Discard, r) // what pads the archive
			return err
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := u.unpack(header, in); err != nil {
			return err
		}
	}
}

// endMarker is the size of the zeros at a tar archive's end.
const endMarker = 1024

// counter counts the zeros at the end of what was read.
type counter struct {
	in    io.Reader
	zeros int
}

// Read implements io.Reader.
func (c *counter) Read(data []byte) (int, error) {
	n, err := c.in.Read(data)
	if other := len(bytes.TrimRight(data[:n], "\x00")); other > 0 {
		c.zeros = -other
	}
	c.zeros += n
	return n, err
}

type unpacker struct {
	folder int // the descriptor of the target's folder
	users  *spec.UserNamespace
	modes  int64
	warn   func(string)
	// checked says that there is room for the copy. Of an archive, each file is looked at: how many are to come is not
	// known.
	checked bool
	fresh   bool // the archive may have the owner and mode of the target's folder

	parent string // the folder that dir returned last
	fd     int    // its descriptor, -1 for none
}

func (u *unpacker) unpack(header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if name == "" {
		return u.own(header)
	}
	dir, base := path.Split(name)
	at, err := u.dir(strings.TrimSuffix(dir, "/"))
	if err == nil {
		err = u.make(at, base, header, content)
	}
	if err != nil {
		return pathError("make", name, err)
	}
	return nil
}

// own makes the target's folder itself as the archive has it, if the folder is a new one.
func (u *unpacker) own(header *tar.Header) error {
	if !u.fresh || header.Typeflag != tar.TypeDir {
		return nil
	}
	path := fmt.Sprintf("/proc/self/fd/%d/.", u.folder)
	err := errors.Join(os.Chown(path, header.Uid, header.Gid), unix.Chmod(path, uint32(header.Mode&u.modes)))
	if err != nil {
		return fmt.Errorf("set owner and mode of the folder: %w", err)
	}
	return nil
}

func (u *unpacker) make(at int, base string, header *tar.Header, content io.Reader) (err error) {
	if header.Uid, err = u.outside(header.Uid); err != nil {
		return err
	}
	if header.Gid, err = u.outside(header.Gid); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return u.makeFolder(at, base, header)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return u.makeFile(at, base, header, content)
	case tar.TypeSymlink:
		if err := unlink(at, base); err != nil {
			return err
		}
		if err := unix.Symlinkat(header.Linkname, at, base); err != nil {
			return err
		}
		return unix.Fchownat(at, base, header.Uid, header.Gid, unix.AT_SYMLINK_NOFOLLOW)
	case tar.TypeLink:
		return u.makeLink(at, base, header)
	case tar.TypeXGlobalHeader: // it describes no file
		return nil
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		u.warn(fmt.Sprintf("%q is left out: a device, FIFO or socket", header.Name))
		return nil
	default:
		return fmt.Errorf("unknown type %q of a tar archive's entry", header.Typeflag)
	}
}

// outside returns the caller's number of an ID of the tree.
func (u *unpacker) outside(id int) (int, error) {
	if u.users == nil {
		return id, nil
	}
	if id < 0 || id >= int(u.users.Size) {
		return 0, fmt.Errorf("owner %d: the app has only %d users and groups", id, u.users.Size)
	}
	return id + int(u.users.HostID), nil
}

func (u *unpacker) makeFolder(at int, base string, header *tar.Header) error {
	if err := unix.Mkdirat(at, base, 0o700); errors.Is(err, unix.EEXIST) {
		var stat unix.Stat_t
		if err := unix.Fstatat(at, base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil ||
			stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			return err
		}
		return unix.ENOTDIR
	} else if err != nil {
		return err
	}
	fd, err := unix.Openat(at, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return errors.Join(unix.Fchown(fd, header.Uid, header.Gid), unix.Fchmod(fd, uint32(header.Mode&u.modes)))
}

// makeFile makes a new file and replaces any file of the name.
func (u *unpacker) makeFile(at int, base string, header *tar.Header, content io.Reader) error {
	if !u.checked {
		if err := hasRoom(at, header.Size); err != nil {
			return err
		}
	}
	if err := unlink(at, base); err != nil {
		return err
	}
	// O_EXCL refuses a symbolic link as well, wherever it leads.
	fd, err := unix.Openat(at, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), base)
	err = sparse.Write(file, content, nil)
	when := unix.NsecToTimespec(header.ModTime.UnixNano())
	// The owner first: a change of it clears setuid and setgid.
	err = errors.Join(err, unix.Fchown(fd, header.Uid, header.Gid), unix.Fchmod(fd, uint32(header.Mode&u.modes)),
		unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{when, when}, 0), file.Close())
	if err != nil {
		_ = unlink(at, base) // not a part of a file
	}
	return err
}

// makeLink makes another name for a file that has been unpacked.
func (u *unpacker) makeLink(at int, base string, header *tar.Header) error {
	first := strings.TrimPrefix(path.Clean("/"+header.Linkname), "/")
	dir, name := path.Split(first)
	from, err := u.find(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(from) }()
	if err := unlink(at, base); err != nil {
		return err
	}
	return unix.Linkat(from, name, at, base, 0)
}

// unlink removes a file or a link, if it is there.
func unlink(at int, base string) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(at, base, &stat, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO, unix.S_IFSOCK:
			return errSpecial
		}
	}
	if err := unix.Unlinkat(at, base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// dir returns a descriptor of a folder below the target's, valid until the next call. It makes missing folders, and
// follows no symbolic link.
func (u *unpacker) dir(name string) (int, error) {
	if u.fd >= 0 && u.parent == name {
		return u.fd, nil
	}
	u.forget()
	fd, err := u.find(name)
	if errors.Is(err, unix.ENOENT) {
		parent, base := path.Split(name)
		var above int
		if above, err = u.dir(strings.TrimSuffix(parent, "/")); err != nil {
			return -1, err
		}
		if err := unix.Mkdirat(above, base, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
		u.forget()
		fd, err = u.find(name)
	}
	if err != nil {
		return -1, err
	}
	u.parent, u.fd = name, fd
	return fd, nil
}

// find opens a folder below the target's, which the caller closes.
func (u *unpacker) find(name string) (int, error) {
	if name == "" {
		name = "."
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(u.folder, name, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

func (u *unpacker) forget() {
	if u.fd >= 0 {
		_ = unix.Close(u.fd)
	}
	u.parent, u.fd = "", -1
}
