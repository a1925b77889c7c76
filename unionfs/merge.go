package unionfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Copying works like overlay's look-up: one walk over all layers at once. A name comes from the topmost
// layer that has it. A directory merges with those in the layers below, until a layer has another kind
// of file there, or an opaque directory. So the copier never writes a file twice, never removes a file,
// and creates every name once (with O_EXCL or similar). It never follows a symbolic link of a layer: it
// works relative to descriptors of directories opened with O_NOFOLLOW.

// markers says how to treat overlay's own marks in a layer: character devices 0:0, and attributes
// trusted.overlay.*.
type markers int

const (
	merged   markers = iota // they hide what is below and are not copied
	verbatim                // they are copied, for overlay to read
	dropped                 // they are not copied, and devices are left out: the copy is no layer
)

type copier struct {
	ctx     context.Context
	top     int // descriptor of the destination's top directory
	layers  []Layer
	markers markers
	links   map[inode]string // first copy of a file with several names
	noClone bool             // FICLONE failed once; it is not tried again
}

// inode is a file of a layer. Files of two layers are distinct, even if they are the same on disk.
type inode struct {
	layer    int
	dev, ino uint64
}

// source is a directory of one layer.
type source struct {
	layer int
	dir   *os.File
}

// copyLayers copies the merged contents of layers into the existing, empty directory dst.
func copyLayers(ctx context.Context, dst string, layers []Layer, m markers) error {
	out, err := os.OpenFile(dst, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	sources, err := openLayers(layers)
	defer closeSources(sources)
	if err != nil {
		return err
	}
	c := &copier{
		ctx: ctx, top: int(out.Fd()), layers: layers, markers: m,
		links: map[inode]string{},
	}
	return c.copyDirectory("", int(out.Fd()), sources)
}

func openLayers(layers []Layer) ([]source, error) {
	sources := make([]source, 0, len(layers))
	for i, l := range layers {
		dir, err := os.OpenFile(l.Dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
		if err != nil {
			return sources, err
		}
		sources = append(sources, source{i, dir})
	}
	return sources, nil
}

func closeSources(sources []source) {
	for _, s := range sources {
		s.dir.Close() // opened for reading
	}
}

// entry is what the layers have under one name: the topmost layer's file, and if that is a directory,
// the directories that merge with it.
type entry struct {
	name  string
	path  string // relative to the layers' top
	layer int
	dir   *os.File // the topmost layer's directory that holds it
	stat  unix.Stat_t
	below []source // directories that may have what merges with it
}

func (e *entry) isDir() bool { return e.stat.Mode&unix.S_IFMT == unix.S_IFDIR }

func (e *entry) isDevice() bool {
	kind := e.stat.Mode & unix.S_IFMT
	return kind == unix.S_IFCHR || kind == unix.S_IFBLK
}

func (e *entry) isWhiteout() bool {
	return e.stat.Mode&unix.S_IFMT == unix.S_IFCHR && e.stat.Rdev == 0
}

// copyDirectory copies the content of the merged directory at rel into out.
func (c *copier) copyDirectory(rel string, out int, sources []source) error {
	entries, err := c.mergeNames(rel, sources)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := c.ctx.Err(); err != nil {
			return fmt.Errorf("copy /%s: %w", e.path, err)
		}
		if err := c.copyEntry(e, out); err != nil {
			return fmt.Errorf("copy /%s of %s: %w", e.path, c.layers[e.layer].Dir, err)
		}
	}
	return nil
}

// mergeNames merges the names of sources, the topmost first.
func (c *copier) mergeNames(rel string, sources []source) ([]*entry, error) {
	var entries []*entry
	seen := map[string]*entry{}
	closed := map[string]bool{} // what lies further down does not merge
	for _, s := range sources {
		names, err := s.dir.Readdirnames(-1)
		if err != nil {
			return nil, fmt.Errorf("read /%s of %s: %w", rel, c.layers[s.layer].Dir, err)
		}
		for _, name := range names {
			if closed[name] {
				continue
			}
			e := &entry{name: name, path: path.Join(rel, name), layer: s.layer, dir: s.dir}
			if kept, err := c.look(e); err != nil {
				return nil, fmt.Errorf("look up /%s of %s: %w", e.path, c.layers[s.layer].Dir, err)
			} else if !kept {
				continue
			}
			first := seen[name]
			closed[name] = !e.isDir() || isOpaque(e)
			switch {
			case first == nil:
				seen[name] = e
				entries = append(entries, e)
			case e.isDir():
				if _, err := xattrsOf(e, c.markers); err != nil {
					return nil, fmt.Errorf("merge /%s of %s: %w", e.path, c.layers[s.layer].Dir, err)
				}
				first.below = append(first.below, s)
			}
		}
	}
	return entries, nil
}

// look fills e.stat and tells whether the layer's filter keeps e.
func (c *copier) look(e *entry) (bool, error) {
	if err := unix.Fstatat(int(e.dir.Fd()), e.name, &e.stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	filter := c.layers[e.layer].Filter
	if filter.keeps(e.path, e.isDir()) {
		return true, nil
	}
	if !e.isDir() {
		return false, nil
	}
	dir, err := openDirAt(e.dir, e.name)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	return anyPath(dir, e.path, func(_ *os.File, p string, dir bool) bool { return filter.keeps(p, dir) })
}

// copyEntry copies one name into the directory out.
func (c *copier) copyEntry(e *entry, out int) error {
	if c.markers == merged && e.isWhiteout() || c.markers == dropped && e.isDevice() {
		return nil
	}
	if !e.isDir() {
		return c.copyFile(e, out)
	}
	if err := unix.Mkdirat(out, e.name, 0o700); err != nil {
		return err
	}
	if err := c.descend(e, out); err != nil {
		return err
	}
	return c.attributes(e, out)
}

// descend copies the content of the directory e.
func (c *copier) descend(e *entry, out int) error {
	made, err := openFileAt(out, e.name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer made.Close()
	var sources []source
	defer func() { closeSources(sources) }()
	for _, parent := range append([]source{{e.layer, e.dir}}, e.below...) {
		dir, err := openDirAt(parent.dir, e.name)
		if err != nil {
			return err
		}
		sources = append(sources, source{parent.layer, dir})
	}
	return c.copyDirectory(e.path, int(made.Fd()), sources)
}

// copyFile copies anything but a directory, or makes a hard link to its first copy.
func (c *copier) copyFile(e *entry, out int) error {
	key := inode{e.layer, e.stat.Dev, e.stat.Ino}
	if first, ok := c.links[key]; ok {
		return unix.Linkat(c.top, first, out, e.name, 0)
	}
	if err := c.create(e, out); err != nil {
		return err
	}
	if e.stat.Nlink > 1 {
		c.links[key] = e.path
	}
	return c.attributes(e, out)
}

// create makes the file with its content and no permissions.
func (c *copier) create(e *entry, out int) error {
	switch kind := e.stat.Mode & unix.S_IFMT; kind {
	case unix.S_IFREG:
		return c.regular(e, out)
	case unix.S_IFLNK:
		return copySymlink(e, out)
	case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO, unix.S_IFSOCK:
		return unix.Mknodat(out, e.name, kind, int(e.stat.Rdev))
	default:
		return errors.New("unknown type of file")
	}
}

func copySymlink(e *entry, out int) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(e.dir.Fd()), e.name, buf)
	if err != nil {
		return err
	}
	return unix.Symlinkat(string(buf[:n]), out, e.name)
}
