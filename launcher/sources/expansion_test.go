package sources

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
)

// Zeros of a registry's layer are taken, whatever its compression, and take no space on the disk. Data that a few bytes
// expand to has a limit.
func TestZerosOfALayerBecomeHoles(t *testing.T) {
	host := memoryRegistry(t, func(http.ResponseWriter, *http.Request) bool { return false })
	zeros := tarOf(t, make([]byte, 64<<20))
	for name, tt := range map[string]struct {
		layer v1.Layer
		size  int64
		words string // of the error
	}{
		"gzip":          {compressed(t, zeros, compression.GZip), 64 << 20, ""},
		"zstd":          {compressed(t, zeros, compression.ZStd), 64 << 20, ""},
		"more in zstd":  {compressed(t, tarOf(t, make([]byte, 128<<20)), compression.ZStd), 128 << 20, ""},
		"a sparse file": {compressed(t, sparseFile(t, "1073741824"), compression.GZip), 1 << 30, ""},
		"data":          {compressed(t, tarOf(t, bytes.Repeat([]byte("x"), 256<<20)), compression.ZStd), 0, "more than 1100 times as many"},
	} {
		image, err := mutate.AppendLayers(randomImage(t), tt.layer)
		if err != nil {
			t.Fatal(err)
		}
		f := newFetcher(t)
		imported, err := f.Import(t.Context(), pushTo(t, host+"/app", image))
		if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %q", name, err, tt.words)
		}
		if err != nil {
			continue
		}
		layers, err := f.Store.Catalog(f.Ring, nil).Layers(imported)
		if err != nil || len(layers) != 4 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(layers[1].Rootfs(), "f"), &st); err != nil || st.Size != tt.size || st.Blocks*512 > 1<<20 {
			t.Errorf("%s: %d bytes, %d on the disk, %v; want %d and few", name, st.Size, st.Blocks*512, err, tt.size)
		}
	}
}

// tarOf is an archive with a file.
func tarOf(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Name: "f", Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func compressed(t *testing.T, content []byte, how compression.Compression) v1.Layer {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithCompression(how))
	if err != nil {
		t.Fatal(err)
	}
	return layer
}
