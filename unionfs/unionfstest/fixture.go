package unionfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
)

// item is one file of a layer to be made.
type item struct {
	path  string
	mode  uint32 // with the S_IF bits
	data  string // content, or a symbolic link's target, or the path to link to
	rdev  uint64
	uid   int
	gid   int
	xattr map[string]string
	hard  bool // a hard link to data
}

func dir(path string) item           { return item{path: path, mode: unix.S_IFDIR | 0o755} }
func file(path, data string) item    { return item{path: path, mode: unix.S_IFREG | 0o644, data: data} }
func symlink(path, to string) item   { return item{path: path, mode: unix.S_IFLNK, data: to} }
func fifo(path string) item          { return item{path: path, mode: unix.S_IFIFO | 0o600} }
func socket(path string) item        { return item{path: path, mode: unix.S_IFSOCK | 0o600} }
func hardlink(path, to string) item  { return item{path: path, data: to, hard: true} }
func (i item) perm(mode uint32) item { i.mode = i.mode&unix.S_IFMT | mode; return i }
func (i item) owned(uid, gid int) item {
	i.uid, i.gid = uid, gid
	return i
}

func char(path string, major, minor uint32) item {
	return item{path: path, mode: unix.S_IFCHR | 0o600, rdev: unix.Mkdev(major, minor)}
}

func block(path string, major, minor uint32) item {
	return item{path: path, mode: unix.S_IFBLK | 0o600, rdev: unix.Mkdev(major, minor)}
}

func (i item) with(name, value string) item {
	attrs := map[string]string{name: value}
	for n, v := range i.xattr {
		attrs[n] = v
	}
	i.xattr = attrs
	return i
}

// bench is what one test works with: a tmpfs with layers, scratch directories and targets. At the
// test's end it checks that no layer has changed.
type bench struct {
	t      testing.TB
	driver unionfs.Driver
	dir    string
	layers []string
	roots  int
}

func newBench(t testing.TB, d unionfs.Driver) *bench {
	t.Helper()
	b := &bench{t: t, driver: d, dir: t.TempDir()}
	must(t, unix.Mount("tmpfs", b.dir, "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() { must(t, unix.Unmount(b.dir, unix.MNT_DETACH)) })
	return b
}

// layer makes a layer of items and returns it.
func (b *bench) layer(items ...item) unionfs.Layer {
	b.t.Helper()
	return b.layerAt(filepath.Join(b.dir, fmt.Sprintf("layer-%d", len(b.layers))), items...)
}

func (b *bench) layerAt(path string, items ...item) unionfs.Layer {
	b.t.Helper()
	must(b.t, os.Mkdir(path, 0o755))
	for _, i := range items {
		b.create(path, i)
	}
	b.layers = append(b.layers, path)
	before := snapshot(b.t, path)
	b.t.Cleanup(func() {
		if diff := cmp.Diff(before, snapshot(b.t, path)); diff != "" {
			b.t.Errorf("layer %s changed (-before +after):\n%s", path, diff)
		}
	})
	return unionfs.Layer{Dir: path}
}

// create makes one item, with its parents, at a fixed time in the past.
func (b *bench) create(base string, i item) {
	b.t.Helper()
	path := filepath.Join(base, i.path)
	must(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	if i.hard {
		must(b.t, os.Link(filepath.Join(base, i.data), path))
		return
	}
	switch i.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		must(b.t, os.MkdirAll(path, 0o755))
	case unix.S_IFREG:
		must(b.t, os.WriteFile(path, []byte(i.data), 0o600))
	case unix.S_IFLNK:
		must(b.t, os.Symlink(i.data, path))
	default:
		must(b.t, unix.Mknod(path, i.mode, int(i.rdev)))
	}
	must(b.t, os.Lchown(path, i.uid, i.gid))
	if i.mode&unix.S_IFMT != unix.S_IFLNK {
		must(b.t, unix.Chmod(path, i.mode&0o7777))
	}
	for name, value := range i.xattr {
		must(b.t, unix.Lsetxattr(path, name, []byte(value), 0))
	}
	past := unix.Timespec{Sec: 1, Nsec: 500}
	must(b.t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{past, past}, unix.AT_SYMLINK_NOFOLLOW))
}

// root describes a root of layers, the topmost first, with new scratch and target directories.
func (b *bench) root(layers ...unionfs.Layer) unionfs.Root {
	b.t.Helper()
	b.roots++
	r := unionfs.Root{
		App:     fmt.Sprintf("app%d", b.roots),
		Layers:  layers,
		Scratch: filepath.Join(b.dir, fmt.Sprintf("scratch-%d", b.roots)),
		Target:  filepath.Join(b.dir, fmt.Sprintf("target-%d", b.roots)),
	}
	must(b.t, os.Mkdir(r.Scratch, 0o700))
	must(b.t, os.Mkdir(r.Target, 0o700))
	return r
}

// mount mounts r until the test's end and returns its target.
func (b *bench) mount(r unionfs.Root) string {
	b.t.Helper()
	must(b.t, b.driver.Mount(b.t.Context(), r))
	b.t.Cleanup(func() { must(b.t, Unmount(r)) })
	return r.Target
}

// stack makes layers of items, mounts them, the first on top, and returns the root.
func (b *bench) stack(layers ...[]item) string {
	b.t.Helper()
	stacked := make([]unionfs.Layer, len(layers))
	for i, items := range layers {
		stacked[i] = b.layer(items...)
	}
	return b.mount(b.root(stacked...))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
