package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kurma.io/stager/spec"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Resolve returns where a path leads to in the root that layers make, without symbolic links; names that do not exist
// stay. No link leads out of the root. Layers are in the order of Catalog.Layers, the top one first. Mounted are paths
// without links on which something is mounted: it covers what the layers have there and below.
func Resolve(layers []*Image, name string, mounted []string) (string, error) {
	return securejoin.SecureJoinVFS("/", name, &merged{layers: layers, mounted: mounted, names: maxLinkNames})
}

// Lstat describes the file of a path in the root that layers make, or returns fs.ErrNotExist. Layers are in the order
// of Catalog.Layers, the top one first. It follows no link: what a link in the place of a folder leads to does not
// exist.
func Lstat(layers []*Image, name string) (fs.FileInfo, error) {
	return (&merged{layers: layers}).Lstat(name)
}

// merged is the root that layers make. It implements securejoin.VFS, for paths with a link at most as their last name:
// securejoin replaces all links before.
type merged struct {
	layers  []*Image // in the store, where none changes
	mounted []string
	names   int // how many more names links may add: a layer's author must not choose how long the search takes
}

// Lstat implements securejoin.VFS.
func (m *merged) Lstat(name string) (fs.FileInfo, error) {
	found, err := m.find(name)
	if err != nil {
		return nil, err
	}
	return os.Lstat(found)
}

// Readlink implements securejoin.VFS.
func (m *merged) Readlink(name string) (string, error) {
	found, err := m.find(name)
	if err != nil {
		return "", err
	}
	target, err := os.Readlink(found)
	if m.names -= strings.Count(target, "/") + 1; err == nil && m.names < 0 {
		err = fmt.Errorf("path passes through symbolic links of more than %d names", maxLinkNames)
	}
	return target, err
}

// find returns the file of the topmost layer that has that path, or fs.ErrNotExist.
func (m *merged) find(name string) (string, error) {
	name = path.Clean(name)
	if slices.ContainsFunc(m.mounted, func(target string) bool { return name == target || spec.Inside(name, target) }) {
		return "", fs.ErrNotExist
	}
	for _, layer := range m.layers {
		if found, err := findIn(layer.Rootfs(), name); found != "" || err != nil {
			return found, err
		}
	}
	return "", fs.ErrNotExist
}

// findIn returns the file of a layer that has that path; "" if the layers below may have it. A whiteout, an opaque
// folder, and a file or link in the place of a folder hide what the layers below have there, as in overlayfs.
func findIn(root, name string) (string, error) {
	names, opaque := strings.Split(strings.Trim(name, "/"), "/"), false
	for i, next := range names {
		root = filepath.Join(root, next)
		info, err := os.Lstat(root)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !opaque:
			return "", nil
		case err != nil:
			return "", err
		case isWhiteout(info) || i < len(names)-1 && !info.IsDir():
			return "", fs.ErrNotExist
		}
		opaque = opaque || isOpaque(root)
	}
	return root, nil
}

func isWhiteout(info fs.FileInfo) bool {
	return info.Mode()&fs.ModeCharDevice != 0 && info.Sys().(*syscall.Stat_t).Rdev == 0
}
