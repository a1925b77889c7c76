package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/build"
	"kurma.io/stager/tests/surroundings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// writeAll writes entries.
func writeAll(w *Writer, entries ...file) error {
	for _, e := range entries {
		header := e.Header
		header.Size = int64(len(e.content))
		if err := w.Entry(header, strings.NewReader(e.content)); err != nil {
			return err
		}
	}
	return nil
}

// An image that is written is the one that its file becomes, also where an entry replaces another.
func TestAWrittenImageIsThatOfItsFile(t *testing.T) {
	surroundings.Root(t)
	folder := func(name string, seconds int64, records map[string]string) file {
		return file{Header: tar.Header{
			Typeflag: tar.TypeDir, Name: name, Mode: 0o2750, Uid: 1, Gid: 2, ModTime: time.Unix(seconds, 7), PAXRecords: records,
		}}
	}
	entries := []file{
		dir("rootfs"), regular("rootfs/f", "content"), link(tar.TypeLink, "rootfs/l", "rootfs/f"), link(tar.TypeSymlink, "rootfs/s", "d"),
		folder("rootfs/d", 5, map[string]string{"SCHILY.xattr.user.a": "1"}), regular("rootfs/d/e/f", "x"),
		folder("rootfs/d", 6, map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}), zeros(1 << 20), regular("rootfs/e", "x"), dir("rootfs/e"),
		{Header: tar.Header{Typeflag: tar.TypeChar, Name: "rootfs/gone"}},
		regular("rootfs/s/through", "x"),
	}
	written, unpacked := t.TempDir(), t.TempDir()
	var archive bytes.Buffer
	record, err := writeImage(written, &archive, []byte(testManifest), func(w *Writer) error { return writeAll(w, entries...) })
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("sha512-%x", sha512.Sum512(archive.Bytes()))
	id, from, err := unpack(unpacked, bytes.NewReader(archive.Bytes()))
	if err != nil || id != want {
		t.Fatalf("%s, %v, want %s", id, err, want)
	}
	if diff := cmp.Diff(from, record, cmpopts.IgnoreFields(Record{}, "Imported")); diff != "" {
		t.Error(diff)
	}
	var trees [2][]build.Entry
	var times [2][]time.Time
	for i, at := range []string{unpacked, written} {
		root := filepath.Join(at, rootfsDir)
		if trees[i], err = build.Tree(root, true); err != nil {
			t.Fatal(err)
		}
		for _, e := range trees[i] {
			info, err := os.Lstat(e.Source)
			if err != nil {
				t.Fatal(err)
			}
			times[i] = append(times[i], info.ModTime())
		}
		if !isOpaque(filepath.Join(root, "d")) {
			t.Errorf("%s/d is not opaque", root)
		}
	}
	if diff := cmp.Diff(trees[0], trees[1], cmpopts.IgnoreFields(build.Entry{}, "Source")); diff != "" {
		t.Error(diff)
	}
	implied := func(a, b time.Time) bool { return a.Equal(b) || time.Since(a) < time.Hour && time.Since(b) < time.Hour }
	if diff := cmp.Diff(times[0], times[1], cmp.Comparer(implied)); diff != "" {
		t.Error(diff)
	}
	s := newStore(t)
	if image, err := s.Write([]byte(testManifest), func(w *Writer) error { return writeAll(w, entries...) }); err != nil || image.ID != want {
		t.Errorf("%v, %v, want %s", image, err, want)
	}
	s.checkOnly(t, want)
}

// A writer knows which folders it has written, and follows no link to them.
func TestAWriterKnowsItsFolders(t *testing.T) {
	surroundings.Root(t)
	when := time.Unix(5, 7)
	_, err := writeImage(t.TempDir(), io.Discard, []byte(testManifest), func(w *Writer) error {
		if err := writeAll(w, dir("rootfs"), file{Header: tar.Header{Typeflag: tar.TypeDir, Name: "rootfs/d", Mode: 0o1750, Uid: 1, Gid: 2, ModTime: when}},
			regular("rootfs/d/implied/f", "x"), link(tar.TypeSymlink, "rootfs/s", "d")); err != nil {
			return err
		}
		for name, want := range map[string]any{
			".": int64(0o755), "d": int64(0o1750), "d/implied": int64(0o755), "d/implied/f": unix.ENOTDIR, "d/implied/f/x": unix.ENOTDIR, "s": unix.ENOTDIR,
			"s/implied": unix.ENOTDIR, "none": fs.ErrNotExist, "none/x": fs.ErrNotExist, "d/none": fs.ErrNotExist,
		} {
			header, err := w.Folder(name)
			wanted, isError := want.(error)
			if isError && !errors.Is(err, wanted) || !isError && (err != nil || header.Mode != want) {
				t.Errorf("%s: %+v, %v, want %v", name, header, err, want)
			}
		}
		header, err := w.Folder("d")
		if err == nil && (header.Uid != 1 || header.Gid != 2 || !header.ModTime.Equal(when)) {
			t.Errorf("%+v", header)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What is not wholly written is no image.
func TestAnImageIsWrittenAsAWhole(t *testing.T) {
	surroundings.Root(t)
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		write func(w *Writer) error
		words string
	}{
		"an error after the last entry": {func(w *Writer) error {
			return errors.Join(writeAll(w, dir("rootfs"), regular("rootfs/f", "x")), broken)
		}, "broken"},
		"no rootfs":         {func(*Writer) error { return nil }, "no rootfs found"},
		"a second manifest": {func(w *Writer) error { return writeAll(w, dir("rootfs"), regular("manifest", testManifest)) }, "a second manifest"},
		"a name outside":    {func(w *Writer) error { return writeAll(w, dir("rootfs"), regular("rootfs/../f", "x")) }, `a path with ".."`},
		"less than the header says": {func(w *Writer) error {
			return errors.Join(writeAll(w, dir("rootfs")), w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: "rootfs/f", Size: 2}, strings.NewReader("x")))
		}, "missed writing 1 bytes"},
		"more than the header says": {func(w *Writer) error {
			return errors.Join(writeAll(w, dir("rootfs")), w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: "rootfs/f", Size: 2}, strings.NewReader("xyz")))
		}, "write too long"},
		"more than is free": {func(w *Writer) error {
			return errors.Join(writeAll(w, dir("rootfs")), w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: "rootfs/f", Size: 1 << 60}, strings.NewReader("")))
		}, "bytes do not fit"},
		"too many entries": {func(w *Writer) error {
			w.extractor.entries = 2
			return writeAll(w, dir("rootfs"), regular("rootfs/f", "x"), regular("rootfs/g", "x"))
		}, "more than 1048576 entries"},
	} {
		s := newStore(t)
		if image, err := s.Write([]byte(testManifest), tt.write); err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, %v, want %q", name, image, err, tt.words)
		}
		s.checkOnly(t)
	}
}
