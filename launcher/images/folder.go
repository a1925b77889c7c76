package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
)

// CopyFolder makes the empty folder dst a copy of the folder that the root of layers has at a path, see
// unionfs.CopyFolder. It returns false, and copies nothing, if there is no folder, or if an image has a pathWhitelist,
// by which only a stager finds out what the root has. Layers are in the order of Catalog.Layers, the top one first.
func CopyFolder(ctx context.Context, layers []*Image, name, dst string) (found bool, err error) {
	if !whole(layers) {
		return false, nil
	}
	m := NewMerged(layers)
	defer m.Close()
	opened, err := m.folder(name)
	defer func() {
		for _, folder := range opened {
			_ = folder.Close()
		}
	}()
	if err != nil || len(opened) == 0 {
		return false, err
	}
	if err := unionfs.CopyFolder(ctx, dst, opened[0], opened[1:]...); err != nil {
		return true, fmt.Errorf("copy the image's files at %q: %w", shorten(name), err)
	}
	return true, nil
}

// folder opens a folder in the layers that have it and show it, the topmost first. The caller closes them, also after
// an error.
func (m *Merged) folder(name string) (opened []*os.File, err error) {
	if name, err = m.Resolve(name); err != nil {
		return nil, err
	}
	switch info, err := m.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, nil
	}
	if err := m.enter(path.Join(".", name)); err != nil {
		return nil, err
	}
	for i, at := range m.open {
		if at < 0 {
			continue
		}
		shown := filepath.Join(m.layers[i].Rootfs(), name)
		fd, err := unix.Open(pathIn(at, "."), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return opened, &os.PathError{Op: "open", Path: shown, Err: err}
		}
		opened = append(opened, os.NewFile(uintptr(fd), shown))
	}
	return opened, nil
}
