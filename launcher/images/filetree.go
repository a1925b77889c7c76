package images

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxImplied is how many folders an archive may imply beyond one for each of its
	// entries: a path of 4 KiB can imply 2,000 folders.
	maxImplied = 1 << 12

	// maxLinkNames is how many names the symbolic links on the way to one file may add to
	// its path.
	maxLinkNames = 64
)

var errEscapes = errors.New("path escapes rootfs through a symbolic link")

// fileTree is a folder that an archive fills. No path leads out of it, and only the archive
// changes it. To find the folder of an entry costs one system call (os.Root walks a path folder by folder, too slowly
// for TestHostileArchivesTakeLittle), unless the path passes through a symbolic link.
type fileTree struct {
	root    *os.File
	implied int // how many more folders may be made that no entry names

	parent string // the folder that dir returned last, "" for none
	fd     int
}

func openTree(dir string) (*fileTree, error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &fileTree{root: root, implied: maxImplied, fd: -1}, nil
}

func (t *fileTree) close() {
	t.forget()
	_ = t.root.Close()
}

// forget closes the folder that dir returned last. A caller that removes a folder or link
// calls it, because a path may lead elsewhere now.
func (t *fileTree) forget() {
	if t.fd >= 0 {
		_ = unix.Close(t.fd)
	}
	t.parent, t.fd = "", -1
}

// dir returns a descriptor, opened with O_PATH, of the folder with that clean path. It makes
// missing folders. It is valid until the next call of dir or forget.
func (t *fileTree) dir(name string) (int, error) {
	if t.fd >= 0 && t.parent == name {
		return t.fd, nil
	}
	t.forget()
	fd, err := t.find(name)
	if errors.Is(err, unix.ENOENT) {
		fd, err = t.make(name)
	} else if err != nil {
		fd, err = t.walk(t.dup(), 0, strings.Split(name, "/"))
	}
	if err != nil {
		return -1, err
	}
	t.parent, t.fd = name, fd
	return fd, nil
}

// find opens a folder by a path without a symbolic link.
func (t *fileTree) find(name string) (int, error) {
	for {
		fd, err := unix.Openat2(int(t.root.Fd()), name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

func (t *fileTree) dup() int {
	fd, err := unix.FcntlInt(t.root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1 // the first use reports EBADF
	}
	return fd
}

// make makes the missing folders of a path. To find the longest part that exists it goes up
// by 1, 2, 4… names: to try each would take time that grows with the square of the depth.
func (t *fileTree) make(name string) (int, error) {
	names := strings.Split(name, "/")
	for up := 1; up < len(names); up *= 2 {
		have := len(names) - up
		fd, err := t.find(path.Join(names[:have]...))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			break
		}
		return t.walk(fd, have, names[have:])
	}
	return t.walk(t.dup(), 0, names)
}

// walk goes down from the open folder at, which it closes, name by name. Depth is the number
// of folders between the root and at. It makes missing folders and follows relative symbolic
// links that stay in the root.
func (t *fileTree) walk(at, depth int, names []string) (int, error) {
	links := maxLinkNames
	for len(names) > 0 {
		next, target, err := t.step(at, depth, names[0])
		if err == nil && target != "" {
			added := strings.Split(target, "/")
			if links -= len(added); links >= 0 {
				names = append(added, names[1:]...)
				continue
			}
			err = fmt.Errorf("path passes through symbolic links of more than %d names", maxLinkNames)
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
		switch names[0] {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		at, names = next, names[1:]
	}
	return at, nil
}

// step opens the folder name in at, which is depth folders below the root, and makes it if it
// is missing. For a symbolic link it returns the target instead.
func (t *fileTree) step(at, depth int, name string) (next int, target string, err error) {
	if name == "" {
		name = "."
	}
	if name == ".." && depth == 0 {
		return -1, "", errEscapes
	}
	next, err = openAt(at, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		if t.implied--; t.implied < 0 {
			return -1, "", fmt.Errorf("more than %d folders on the way to the archive's files are not in the archive",
				maxImplied)
		}
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			return -1, "", err
		}
		if err := unix.Fchmodat(at, name, 0o755, 0); err != nil { // whatever the umask
			return -1, "", err
		}
		next, err = openAt(at, name)
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		target, err := readLink(at, name)
		if err != nil {
			return -1, "", fmt.Errorf("%q is not a folder", shorten(name))
		}
		if path.IsAbs(target) {
			return -1, "", errEscapes
		}
		return -1, target, nil
	}
	return next, "", err
}

func openAt(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func readLink(at int, name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, name, target)
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}
