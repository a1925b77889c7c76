package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"kurma.io/stager/spec"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// Resolve returns where a path leads to in the root that layers make, without symbolic links; names that do not exist
// stay. No link leads out of the root. Layers are in the order of Catalog.Layers, the top one first. Mounted are paths
// without links on which something is mounted: it covers what the layers have there and below.
func Resolve(layers []*Image, name string, mounted []string) (string, error) {
	m := NewMerged(layers)
	defer m.Close()
	m.mounted = mounted
	return m.Resolve(name)
}

// Merged is the root that layers in the store make. It implements securejoin.VFS, for paths with a link at most as
// their last name: securejoin replaces all links before. It is not for several goroutines.
//
// A layer's author must not choose how long a search takes: to go one folder down, or back to a folder, takes a few
// system calls for each layer, however deep the folder is. Merged keeps the paths of the folders in which it has
// looked.
type Merged struct {
	layers  []*Image // the top one first; in the store, where none changes
	mounted []string
	names   int // how many more names links may add

	// shown has the folders in which Merged has looked: how many layers, from the top, show what they have in it. Each
	// of these has the folder or nothing in its place.
	shown map[string]int
	at    string // the folder that enter opened last, "" for none
	open  []int  // the folder in each layer that shows it: a descriptor, or -1
}

// NewMerged returns the root of layers in the order of Catalog.Layers, the top one first. The caller closes it.
func NewMerged(layers []*Image) *Merged {
	return &Merged{layers: layers, names: maxLinkNames, shown: map[string]int{".": len(layers)}}
}

// Close closes the folders that Merged has open, one for each layer at most.
func (m *Merged) Close() {
	m.at = ""
	m.hide(0)
}

// hide closes the open folder in the layers below the first n.
func (m *Merged) hide(n int) {
	for _, fd := range m.open[n:] {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	m.open = m.open[:n]
}

// Resolve returns where a path leads to, without symbolic links; names that do not exist stay.
func (m *Merged) Resolve(name string) (string, error) { return securejoin.SecureJoinVFS("/", name, m) }

// Lstat describes the file of a path, or returns fs.ErrNotExist. It follows no link: what a link in the place of a
// folder leads to does not exist.
func (m *Merged) Lstat(name string) (fs.FileInfo, error) {
	_, info, err := m.find(name)
	return info, err
}

// Readlink implements securejoin.VFS.
func (m *Merged) Readlink(name string) (string, error) {
	found, _, err := m.find(name)
	if err != nil {
		return "", err
	}
	target, err := os.Readlink(found)
	if m.names -= strings.Count(target, "/") + 1; err == nil && m.names < 0 {
		err = fmt.Errorf("path passes through symbolic links of more than %d names", maxLinkNames)
	}
	return target, err
}

// find returns the file of the topmost layer that has that path, or fs.ErrNotExist. Its path on the host is valid until
// the next call.
func (m *Merged) find(name string) (found string, info fs.FileInfo, err error) {
	name = path.Clean("/" + name)
	if slices.ContainsFunc(m.mounted, func(target string) bool { return name == target || spec.Inside(name, target) }) {
		return "", nil, fs.ErrNotExist
	}
	if err := m.enter(path.Dir("." + name)); err != nil {
		return "", nil, fmt.Errorf("look up %q in layers: %w", shorten(name), err)
	}
	for _, fd := range m.open {
		if fd < 0 {
			continue
		}
		found = pathIn(fd, path.Base("."+name))
		info, err = os.Lstat(found)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err == nil && isWhiteout(info):
			return "", nil, fs.ErrNotExist
		default:
			return found, info, err
		}
	}
	return "", nil, fs.ErrNotExist
}

// enter opens a folder in each layer that shows it.
func (m *Merged) enter(folder string) error {
	if m.at == folder {
		return nil
	}
	shown, known := m.shown[folder]
	var err error
	if known {
		err = m.reopen(folder, shown)
	} else if err = m.enter(path.Dir(folder)); err == nil {
		err = m.descend(path.Base(folder))
	}
	if err == nil {
		m.at, m.shown[folder] = folder, len(m.open)
	}
	return err
}

// reopen opens a folder, of which is known how many layers show it, by its whole path.
func (m *Merged) reopen(folder string, shown int) error {
	m.Close()
	for _, layer := range m.layers[:shown] {
		tree, err := openTree(layer.Rootfs())
		if err != nil {
			return err
		}
		fd, err := tree.find(folder)
		tree.close()
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		m.open = append(m.open, fd)
	}
	return nil
}

// descend goes from the open folder into a folder in it. A whiteout, an opaque folder, and a file or link in the place
// of a folder hide what the layers below have there, as in overlayfs.
func (m *Merged) descend(base string) error {
	m.at = ""
	for i, fd := range m.open {
		if fd < 0 {
			continue
		}
		next, err := unix.Openat(fd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		m.open[i] = next
		switch {
		case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
			m.hide(i)
			return nil
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return err
		case isOpaque(pathIn(next, ".")):
			m.hide(i + 1)
			return nil
		}
	}
	return nil
}

func pathIn(folder int, base string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", folder, base) }

func isWhiteout(info fs.FileInfo) bool {
	return info.Mode()&fs.ModeCharDevice != 0 && info.Sys().(*syscall.Stat_t).Rdev == 0
}
