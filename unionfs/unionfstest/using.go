package unionfstest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
)

func deleted(b *bench) {
	root := b.stack(
		[]item{file("d/0", "0"), file("f", "0")},
		[]item{file("d/1", "1"), file("f", "1"), file("e/x/y", "1")},
	)
	for _, p := range []string{"f", "d/0", "d/1", "e"} {
		must(b.t, os.RemoveAll(filepath.Join(root, p)))
	}
	wantShape(b.t, root, map[string]string{"d": "dir"})
	must(b.t, os.Remove(filepath.Join(root, "d")))
	wantShape(b.t, root, map[string]string{})
}

func recreated(b *bench) {
	root := b.stack([]item{file("d/0", "0")}, []item{file("d/1", "1"), dir("d/sub")})
	must(b.t, os.RemoveAll(root+"/d"))
	must(b.t, os.Mkdir(root+"/d", 0o755))
	wantShape(b.t, root, map[string]string{"d": "dir"})
	must(b.t, os.WriteFile(root+"/d/1", []byte("new"), 0o644))
	wantShape(b.t, root, map[string]string{"d": "dir", "d/1": "file new"})
}

func renameAndLink(b *bench) {
	root := b.stack([]item{file("d/0", "0"), file("f", "f")}, []item{file("d/1", "1"), dir("g"), dir("empty")})
	must(b.t, os.Rename(root+"/f", root+"/d/f"))
	must(b.t, os.Rename(root+"/d/1", root+"/g/1"))
	must(b.t, os.Link(root+"/d/0", root+"/g/0"))
	must(b.t, os.Rename(root+"/empty", root+"/g/empty"))
	must(b.t, os.WriteFile(root+"/g/0", []byte("both"), 0o644))
	wantShape(b.t, root, map[string]string{
		"d": "dir", "d/0": "file both", "d/f": "file f", "g": "dir", "g/0": "file both", "g/1": "file 1", "g/empty": "dir",
	})
}

func renameDirectories(b *bench) {
	root := b.stack([]item{file("d/e/0", "0"), file("f", "f")}, []item{file("d/e/1", "1"), dir("g")})
	must(b.t, os.Rename(root+"/d/e", root+"/g/e"))
	must(b.t, os.Rename(root+"/f", root+"/d/f"))
	must(b.t, os.Link(root+"/g/e/1", root+"/link"))
	must(b.t, os.Rename(root+"/g", root+"/h"))
	must(b.t, os.WriteFile(root+"/link", []byte("both"), 0o644))
	wantShape(b.t, root, map[string]string{
		"d": "dir", "d/f": "file f", "h": "dir", "h/e": "dir", "h/e/0": "file 0", "h/e/1": "file both", "link": "file both",
	})
}

// writes changes files of a layer in every way; the bench checks the layer.
func writes(b *bench) {
	root := b.stack([]item{
		file("append", "a"), file("truncate", "abc"), file("chmod", "c"), file("chown", "c"), file("touch", "t"),
		file("xattr", "x"), dir("dir"), symlink("link", "append"), file("sub/exec", "e").perm(0o755), fifo("fifo"),
	})
	f, err := os.OpenFile(root+"/append", os.O_APPEND|os.O_WRONLY, 0)
	must(b.t, err)
	_, err = f.WriteString("b")
	must(b.t, err)
	must(b.t, f.Sync())
	must(b.t, f.Close())
	must(b.t, os.Truncate(root+"/truncate", 1))
	must(b.t, unix.Chmod(root+"/chmod", 0o4711))
	must(b.t, os.Chmod(root+"/dir", 0o700))
	must(b.t, os.Lchown(root+"/chown", 7, 8))
	must(b.t, os.Lchown(root+"/link", 7, 8))
	must(b.t, os.Chown(root+"/fifo", 7, 8))
	must(b.t, unix.Lsetxattr(root+"/xattr", "trusted.t", []byte("v"), 0))
	must(b.t, unix.UtimesNanoAt(unix.AT_FDCWD, root+"/touch", nil, 0))
	must(b.t, os.WriteFile(root+"/dir/new", []byte("n"), 0o600))
	wantShape(b.t, root, map[string]string{
		"append": "file ab", "truncate": "file a", "chmod": "file c", "chown": "file c", "touch": "file t", "xattr": "file x",
		"dir": "dir", "dir/new": "file n", "link": "link append", "sub": "dir", "sub/exec": "file e", "fifo": "fifo",
	})
	if got := statOf(b.t, root+"/chmod").Mode & 0o7777; got != 0o4711 {
		b.t.Errorf("mode is %o after chmod 4711", got)
	}
}

func timesSet(b *bench) {
	root := b.stack([]item{file("old", "o"), dir("d")})
	must(b.t, os.WriteFile(root+"/new", []byte("n"), 0o644))
	at := unix.Timespec{Sec: 1000, Nsec: 123456789}
	for _, name := range []string{"old", "d", "new"} {
		must(b.t, unix.UtimesNanoAt(unix.AT_FDCWD, root+"/"+name, []unix.Timespec{at, at}, 0))
		if got := statOf(b.t, root+"/"+name).Mtim; got != at {
			b.t.Errorf("%s has the time of modification %v, want %v", name, got, at)
		}
	}
}

func cleanCopy(b *bench) {
	layer := b.layer(file("d/a", "a"), file("b", "b"))
	want := map[string]string{"d": "dir", "d/a": "file a", "b": "file b"}
	r := b.root(layer)
	for range 3 {
		must(b.t, b.driver.Mount(b.t.Context(), r))
		wantShape(b.t, r.Target, want)
		must(b.t, os.RemoveAll(r.Target+"/d"))
		must(b.t, os.WriteFile(r.Target+"/b", []byte("changed"), 0o644))
		must(b.t, os.WriteFile(r.Target+"/new", nil, 0o644))
		must(b.t, Unmount(r))
		wantShape(b.t, r.Target, map[string]string{})
		wantShape(b.t, r.Scratch, map[string]string{})
	}
}

func twoApps(b *bench) {
	layers := []unionfs.Layer{b.layer(file("a", "0")), b.layer(file("b", "1"))}
	roots := make([]unionfs.Root, 8)
	for i := range roots {
		roots[i] = b.root(layers...)
	}
	errs := make([]error, len(roots))
	var wg sync.WaitGroup
	for i, r := range roots {
		wg.Go(func() { errs[i] = b.driver.Mount(b.t.Context(), r) })
	}
	wg.Wait()
	must(b.t, errors.Join(errs...))
	for _, r := range roots {
		b.t.Cleanup(func() { must(b.t, Unmount(r)) })
		wantShape(b.t, r.Target, map[string]string{"a": "file 0", "b": "file 1"})
		must(b.t, os.WriteFile(r.Target+"/a", []byte(r.App), 0o644))
		must(b.t, os.WriteFile(r.Target+"/"+r.App, nil, 0o644))
	}
	for _, r := range roots {
		wantShape(b.t, r.Target, map[string]string{"a": "file " + r.App, "b": "file 1", r.App: "file "})
	}
}

func unmount(b *bench) {
	r := b.root(b.layer(file("a", "a")))
	must(b.t, Unmount(r)) // nothing mounted: no error
	root := r.Target
	must(b.t, b.driver.Mount(b.t.Context(), r))
	must(b.t, os.Mkdir(root+"/inner", 0o755))
	must(b.t, unix.Mount("tmpfs", root+"/inner", "tmpfs", 0, ""))
	open, err := os.Open(root + "/a")
	must(b.t, err)
	defer open.Close()
	must(b.t, Unmount(r)) // in use, with a mount inside
	wantShape(b.t, r.Target, map[string]string{})
	must(b.t, b.driver.Mount(b.t.Context(), r))
	must(b.t, Unmount(r))
}

func probe(b *bench) {
	layer, r := b.layer(file("a", "a")), b.root()
	_, err := b.driver.Probe(r.Scratch, []string{layer.Dir, layer.Dir})
	must(b.t, err)
	wantShape(b.t, r.Scratch, map[string]string{})
	_, err = b.driver.Probe(filepath.Join(b.dir, "missing"), nil)
	if !errors.Is(err, fs.ErrNotExist) {
		b.t.Errorf("Probe in a missing directory: %v", err)
	}
}

func statOf(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st
}

func wantError(t testing.TB, name string, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error", name)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %q does not say %q", name, err, text)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: error %q has several lines", name, err)
	}
}
