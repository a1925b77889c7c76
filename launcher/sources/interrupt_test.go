package sources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// What reads a large file ends with its context.
func TestReadersEndWithTheirContext(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	archive, diffID := layerOf(t, "a")
	path := filepath.Join(t.TempDir(), "archive")
	file, err := os.Create(path)
	if err == nil {
		_, err = file.Write(archive)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cancel(why)
	f := newFetcher(t)
	for name, read := range map[string]func() error{
		"read":    func() error { return blob{size: -1}.read(ctx, file, diffID, nil) },
		"convert": func() error { _, err := f.storeLayer(ctx, file, blob{size: -1}, diffID); return err },
		"check":   func() error { return check(ctx, download{size: -1}, file) },
		"extract": func() error { _, err := f.extract(ctx, path, layoutIndex); return err },
	} {
		if err := read(); !errors.Is(err, why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The progress of a layer is that of all layers, which are whole only when the last one is converted.
func TestProgressIsThatOfAllLayers(t *testing.T) {
	layers := []v1.Descriptor{{Digest: v1.Hash{Algorithm: "sha256", Hex: "a"}, Size: 10}, {Digest: v1.Hash{Algorithm: "sha256", Hex: "b"}, Size: 30}}
	for _, tt := range []struct {
		digest string
		done   int64
		want   string
	}{{"sha256:a", 4, "4/40"}, {"sha256:b", 4, "14/40"}, {"sha256:b", 30, "39/40"}} {
		var got string
		ofAll(layers, tt.digest, func(done, size int64) { got = fmt.Sprintf("%d/%d", done, size) })(tt.done, -1)
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.digest, got, tt.want)
		}
	}
	if ofAll(layers, "sha256:configuration", nil) != nil {
		t.Error("the configuration has a progress")
	}
}
