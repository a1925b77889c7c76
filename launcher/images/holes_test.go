package images

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The zeros of a file take no space on the disk, however they are compressed.
func TestZerosBecomeHoles(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int64
		data []byte
	}{
		{"gzip", 64 << 20, zipped(archive(t, testManifest, dir("rootfs"), zeros(64<<20)))},
		{"zstd", 64 << 20, piped(t, "zstd", archive(t, testManifest, dir("rootfs"), zeros(64<<20)))},
		{"much in zstd", 512 << 20, zerosOfZstandard(t, 8)},
		{"xz", 80 << 20, piped(t, "xz", archive(t, testManifest, dir("rootfs"), zeros(80<<20)))},
		{"a hole of a tar", 512 << 20, sparseOf(t, 512<<20)},
	} {
		to := t.TempDir()
		if _, record, err := unpack(to, bytes.NewReader(tt.data)); err != nil || record.Size != tt.size {
			t.Errorf("%s: %d bytes, %v", tt.name, record.Size, err)
			continue
		}
		files, err := filepath.Glob(filepath.Join(to, "rootfs/*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if size, onDisk := sizeOf(t, files[0]); size != tt.size || onDisk > 1<<20 {
			t.Errorf("%s: %d bytes, %d on disk; want %d and none", tt.name, size, onDisk, tt.size)
		}
	}
}

// zerosOfZstandard is an image with a file of zeros, in so many frames of 64 MiB.
func zerosOfZstandard(t *testing.T, frames int) []byte {
	t.Helper()
	const size = 64 << 20
	head := archive(t, testManifest, dir("rootfs"))
	head = head[:len(head)-1024] // the end marker
	var file bytes.Buffer
	if err := tar.NewWriter(&file).WriteHeader(&tar.Header{Name: "rootfs/zeros", Mode: 0o644, Size: int64(frames) * size}); err != nil {
		t.Fatal(err)
	}
	zeros := bytes.Repeat(piped(t, "zstd", make([]byte, size)), frames)
	return slices.Concat(piped(t, "zstd", append(head, file.Bytes()...)), zeros, piped(t, "zstd", make([]byte, 1024)))
}

// sparseOf is an image with a sparse file, a hole of that size.
func sparseOf(t *testing.T, size int64) []byte {
	return bytes.Replace(sparse(t), []byte("1152921504606846976"), fmt.Appendf(nil, "%019d", size), 1)
}

func sizeOf(t *testing.T, path string) (size, onDisk int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size(), info.Sys().(*syscall.Stat_t).Blocks * 512
}

// A file with holes has the content that it had, wherever its zeros are.
func TestAFileWithHolesIsWhole(t *testing.T) {
	data := make([]byte, holeSize)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	gap := make([]byte, 3*holeSize)
	for name, want := range map[string][]byte{
		"none": {}, "a byte": {7}, "zeros": gap, "some zeros": gap[:10],
		"a hole first": bytes.Join([][]byte{gap, data}, nil), "a hole last": bytes.Join([][]byte{data, gap}, nil),
		"a hole within":    bytes.Join([][]byte{data[:5], gap, data}, nil),
		"many parts":       bytes.Join([][]byte{data, data, data, data, gap, data, data[:9]}, nil),
		"zeros at the end": bytes.Join([][]byte{data, gap[:99]}, nil),
	} {
		path := filepath.Join(t.TempDir(), "file")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := Decompress(strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		in, err := stream.Content(&tar.Header{}, io.MultiReader(bytes.NewReader(want[:len(want)/3]), bytes.NewReader(want[len(want)/3:])))
		if err == nil {
			err = CopyHoles(out, in, make([]byte, 2*holeSize))
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		if got, readErr := os.ReadFile(path); err != nil || readErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v, %v; want the %d", name, len(got), err, readErr, len(want))
		}
		if _, onDisk := sizeOf(t, path); stream.data > int64(len(want)) || onDisk > stream.data+4096 {
			t.Errorf("%s: %d bytes count, %d are on disk", name, stream.data, onDisk)
		}
	}
}

// A file that is compressed expands to little data, and to zeros with an end.
func TestBombsAreRefused(t *testing.T) {
	bomb := archive(t, testManifest, dir("rootfs"), regular("rootfs/f", strings.Repeat("x", 80<<20)))
	for name, data := range map[string][]byte{
		"zstd": piped(t, "zstd", bomb), "xz": piped(t, "xz", bomb),
		"holes of gzip": zipped(sparseOf(t, 2<<30)), "holes of a size that overflows": zipped(sparseOf(t, 1<<62)),
		"crumbs of gzip": zipped(crumbs(t, 2000)),
	} {
		if _, _, err := unpack(t.TempDir(), bytes.NewReader(data)); err == nil ||
			!strings.Contains(err.Error(), "more than 1100 times as many") && !strings.Contains(err.Error(), "do not fit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	in, err := Decompress(bytes.NewReader(zerosOfZstandard(t, 20)))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, in); err == nil || n > freeZeros+1<<28 {
		t.Errorf("zeros of zstd: %d bytes, %v", n, err)
	}
}

// crumbs is a sparse image of a file that has so many single bytes, each in a part of its own.
func crumbs(t *testing.T, n int) []byte {
	t.Helper()
	content := fmt.Appendf(nil, "%d\n", n)
	for i := range n {
		content = fmt.Appendf(content, "%d\n1\n", i*holeSize)
	}
	content = append(content, make([]byte, -len(content)&511)...)
	content = append(content, strings.Repeat("x", n)...)
	f := regular("rootfs/f", string(content))
	f.Format, f.PAXRecords = tar.FormatPAX, map[string]string{
		// The writer takes no GNU.sparse records, so they go in under a name of the same length.
		"GNX.sparse.major": "1", "GNX.sparse.minor": "0", "GNX.sparse.name": "rootfs/f", "GNX.sparse.realsize": fmt.Sprint(n * holeSize),
	}
	return bytes.ReplaceAll(archive(t, testManifest, dir("rootfs"), f), []byte("GNX.sparse"), []byte("GNU.sparse"))
}
