package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

// An archive of random bytes does not expand, whatever was read of it when a header says how large its file is: of a
// layer that is written while it is read, nothing but the header.
func TestALargeFileMayBeTheFirst(t *testing.T) {
	t.Setenv("TMPDIR", memoryDir(t))
	s := newStore(t)
	for name, tt := range map[string]struct {
		size int64
		read func(in io.Reader) error
	}{
		"layer": {200 << 20, func(in io.Reader) error { return writeEach(s, in) }},
		"file":  {400 << 20, func(in io.Reader) error { _, _, err := unpack(t.TempDir(), in); return err }},
	} {
		out, in := io.Pipe()
		go func() { _ = in.CloseWithError(writeLarge(in, tt.size)) }()
		if err := tt.read(out); err != nil {
			t.Errorf("a %s that begins with a file of %d bytes: %v", name, tt.size, err)
		}
		_ = out.Close()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	}
}

// writeEach imports an image by its entries.
func writeEach(s *Store, in io.Reader) error {
	stream, err := Decompress(in)
	if err != nil {
		return err
	}
	defer stream.Ahead()()
	archive := tar.NewReader(stream)
	if _, err := archive.Next(); err != nil { // the manifest
		return err
	}
	_, err = s.Write([]byte(testManifest), func(w *Writer) error {
		header, err := archive.Next()
		if err != nil {
			return err
		}
		content, err := stream.Content(header, archive)
		return errors.Join(err, w.Entry(*header, content))
	})
	return err
}

// writeLarge writes an image with one file, of so many random bytes.
func writeLarge(out io.Writer, size int64) error {
	w := tar.NewWriter(out)
	entry := func(name string, content io.Reader, size int64) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: size}); err != nil {
			return err
		}
		_, err := io.CopyN(w, content, size)
		return err
	}
	return errors.Join(entry("manifest", strings.NewReader(testManifest), int64(len(testManifest))),
		entry("rootfs/large", rand.NewChaCha8([32]byte{}), size), w.Close())
}

// Zeros are taken, however well they are compressed, and take no space on the disk.
func TestZerosBecomeHoles(t *testing.T) {
	surroundings.Root(t)
	few := archive(t, testManifest, dir("rootfs"), zeros(64<<20))
	many := archive(t, testManifest, dir("rootfs"), zeros(128<<20))
	for name, tt := range map[string]struct {
		size int64
		data []byte
	}{
		"plain": {64 << 20, few}, "gzip": {64 << 20, zipped(few)}, "bzip2": {64 << 20, piped(t, "bzip2", few)},
		"xz": {64 << 20, piped(t, "xz", few)}, "zstd": {64 << 20, piped(t, "zstd", few)},
		"more in gzip": {128 << 20, zipped(many)}, "more in zstd": {128 << 20, piped(t, "zstd", many)},
		"a sparse file": {1 << 30, sparseFile(t, 1<<30, 0)}, "a sparse file with data": {1 << 30, sparseFile(t, 1<<30, 100)},
	} {
		dir := t.TempDir()
		if _, record, err := unpack(dir, bytes.NewReader(tt.data)); err != nil || record.Size != tt.size {
			t.Errorf("%s: %+v, %v", name, record, err)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "rootfs/*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		info, err := os.Stat(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if onDisk := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != tt.size || onDisk > 1<<20 {
			t.Errorf("%s: %d bytes, %d on the disk; want %d and few", name, info.Size(), onDisk, tt.size)
		}
	}
}

// What a small archive makes the disk keep is bounded, and so is the size of all its sparse files.
func TestBombsAreRefused(t *testing.T) {
	surroundings.Root(t)
	data := archive(t, testManifest, dir("rootfs"), regular("rootfs/f", strings.Repeat("x", 140<<20)))
	for name, bomb := range map[string][]byte{
		"zstd": piped(t, "zstd", data), "xz": piped(t, "xz", data[:100<<20]), "bzip2": piped(t, "bzip2", data[:100<<20]),
		"zeros of zstd":                        piped(t, "zstd", archive(t, testManifest, dir("rootfs"), zeros(140<<20))),
		"two sparse files":                     sparseFiles(t, 2, 600<<20, 0),
		"two sparse files whose sum overflows": bytes.Replace(sparseFiles(t, 2, math.MaxInt64, 0), []byte("9223372036854775807"), []byte("0000000000000000001"), 1),
		"sparse data":                          piped(t, "zstd", sparseFiles(t, 200, 4<<20, 1000)),
	} {
		if _, _, err := unpack(t.TempDir(), bytes.NewReader(bomb)); err == nil || !strings.Contains(err.Error(), "more than 1100 times as many") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
