package unionfs_test

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

// copyRoot describes a root of one layer, which it makes empty.
func copyRoot(t *testing.T) unionfs.Root {
	t.Helper()
	dir := t.TempDir()
	r := unionfs.Root{App: "db", Scratch: filepath.Join(dir, "scratch"), Target: filepath.Join(dir, "root")}
	r.Layers = []unionfs.Layer{{Dir: filepath.Join(dir, "layer")}}
	for _, d := range []string{r.Scratch, r.Target, r.Layers[0].Dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	t.Cleanup(func() { must(t, unionfstest.Unmount(r)) })
	return r
}

func TestCopyEndsWithItsContext(t *testing.T) {
	r := copyRoot(t)
	must(t, os.WriteFile(filepath.Join(r.Layers[0].Dir, "a"), nil, 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (unionfs.Copy{}).Mount(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCopyKeepsHoles(t *testing.T) {
	const size = 64 << 20
	r := copyRoot(t)
	path := filepath.Join(r.Layers[0].Dir, "sparse")
	f, err := os.Create(path)
	must(t, err)
	for _, at := range []int64{1 << 20, 40 << 20} {
		_, err = f.WriteAt([]byte("data"), at)
		must(t, err)
	}
	must(t, f.Truncate(size))
	must(t, f.Close())
	must(t, unionfs.Copy{}.Mount(t.Context(), r))
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(r.Target, "sparse"), &st))
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("the copy has %d bytes in %d blocks", st.Size, st.Blocks)
	}
	want, err := os.ReadFile(path)
	must(t, err)
	got, err := os.ReadFile(filepath.Join(r.Target, "sparse"))
	must(t, err)
	if string(want) != string(got) {
		t.Error("the copy's content differs")
	}
}

// What only overlay can look up must not be copied as if it meant nothing.
func TestCopyRefusesReferences(t *testing.T) {
	for _, attr := range []string{"trusted.overlay.redirect", "trusted.overlay.metacopy", "trusted.overlay.whiteout"} {
		t.Run(attr, func(t *testing.T) {
			r := copyRoot(t)
			path := filepath.Join(r.Layers[0].Dir, "odd")
			must(t, os.Mkdir(path, 0o755))
			must(t, unix.Lsetxattr(path, attr, []byte("/x"), 0))
			err := unionfs.Copy{}.Mount(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), "/odd") || !strings.Contains(err.Error(), attr) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A directory that merges below another must not refer to others either.
func TestCopyRefusesReferencesOfMergedDirectories(t *testing.T) {
	r := copyRoot(t)
	mid := t.TempDir()
	r.Layers = append(r.Layers, unionfs.Layer{Dir: mid}, unionfs.Layer{Dir: t.TempDir()})
	for _, l := range r.Layers {
		must(t, os.Mkdir(filepath.Join(l.Dir, "a"), 0o755))
	}
	must(t, unix.Lsetxattr(filepath.Join(mid, "a"), "trusted.overlay.redirect", []byte("/b"), 0))
	err := unionfs.Copy{}.Mount(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "/a of "+mid+": extended attribute trusted.overlay.redirect") {
		t.Errorf("got %v", err)
	}
}

// A layer may be deeper than PATH_MAX.
func TestCopyTakesADeepLayer(t *testing.T) {
	const depth = 300
	r := copyRoot(t)
	name := strings.Repeat("d", 100)
	fd, err := unix.Open(r.Layers[0].Dir, unix.O_DIRECTORY, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
	must(t, unionfs.Copy{}.Mount(t.Context(), r))
	root, err := os.Open(r.Target)
	must(t, err)
	defer root.Close()
	got := 0
	for at := root; at != nil; got++ {
		at, err = openBelow(at, name)
		must(t, err)
	}
	if got-1 != depth {
		t.Errorf("the copy is %d deep, the layer %d", got-1, depth)
	}
}

// openBelow opens a directory, or returns nil where there is none, and closes its parent.
func openBelow(parent *os.File, name string) (*os.File, error) {
	defer parent.Close()
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return os.NewFile(uintptr(fd), name), err
}

// A file that its owner exchanges for another after the copy has looked at it is not followed, and blocks nothing.
func TestCopyReadsNoFileInAFilesPlace(t *testing.T) {
	outside := t.TempDir()
	in, out := filepath.Join(outside, "in"), filepath.Join(outside, "out")
	must(t, errors.Join(os.Mkdir(in, 0o755), os.Mkdir(out, 0o755), os.WriteFile(filepath.Join(outside, "secret"), []byte("host's"), 0o644)))
	must(t, os.Symlink("../secret", filepath.Join(in, "link")))
	must(t, unix.Mkfifo(filepath.Join(in, "fifo"), 0o644))
	if err := unionfs.CopyRegular(in, out, "link"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(out, "link")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link is copied: %v", err)
	}
	must(t, unionfs.CopyRegular(in, out, "fifo")) // no process writes to it
}

// endingContext ends after a number of looks.
type endingContext struct {
	context.Context
	looks int
}

func (c *endingContext) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// The end of the context ends the copy of one large file.
func TestTheCopyOfALargeFileEnds(t *testing.T) {
	const size = 40 << 20
	dir := t.TempDir()
	in, err := os.Create(filepath.Join(dir, "in"))
	if err == nil {
		err = in.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for looks, want := range map[int]error{1: context.Canceled, 9: io.EOF} {
		out, err := os.Create(filepath.Join(dir, "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		err = unionfs.CopyBytes(&endingContext{t.Context(), looks}, out, in, math.MaxInt64)
		info, statErr := out.Stat()
		if !errors.Is(err, want) || statErr != nil || (info.Size() == size) != errors.Is(want, io.EOF) {
			t.Errorf("%d looks: %v after %d bytes, %v", looks, err, info.Size(), statErr)
		}
	}
}
