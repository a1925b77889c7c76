package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withoutEndMarker writes the image as Kurma's own build tool would, which closes the compressed file before the tar.
func withoutEndMarker(t *testing.T, image string) (path string) {
	t.Helper()
	packed, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	archive = bytes.TrimRight(archive, "\x00")
	archive = append(archive, make([]byte, -len(archive)&511)...) // the padding of its last entry
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err = w.Write(archive)
	path = filepath.Join(t.TempDir(), "kurma.aci")
	if err := errors.Join(err, w.Close(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnImageWithoutAnEndMarkerIsImportedWithAWarning(t *testing.T) {
	h := newHost(t)
	path := withoutEndMarker(t, h.image("base.aci", baseManifest))
	const warning = "the archive has no end marker and may be incomplete"
	r := h.try("image", "import", "--json", path)
	if r.code != 0 || strings.Count(r.stderr, warning) != 1 || !strings.Contains(r.stderr, path) {
		t.Errorf("%+v, want the warning %q with the file", r, warning)
	}
	var image struct{ Warning string }
	if err := json.Unmarshal([]byte(r.stdout), &image); err != nil || image.Warning != warning {
		t.Errorf("%+v, %v", image, err)
	}
}
