package sources

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"kurma.io/stager/build"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/tests/surroundings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// A file with all layers of an image has the files that the kernel shows of the layers, and another store takes it.
func TestMergedLayersAreAsTheKernelHasThem(t *testing.T) {
	surroundings.Root(t)
	of, _ := ociLayout(t)
	t.Run("umoci", func(t *testing.T) { checkMerged(t, of) })
	t.Run("opaque folder", func(t *testing.T) {
		checkMerged(t, layoutOf(t, []string{"d/old", "d/e/old", "kept"}, []string{"d/.wh..wh..opq", "d/new"}))
	})
}

// layoutOf makes an OCI layout of an image with such layers, the lowest first, see layerOf.
func layoutOf(t *testing.T, layers ...[]string) (dir string) {
	t.Helper()
	image := empty.Image
	for _, names := range layers {
		archive, _ := layerOf(t, names...)
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(archive)), nil
		})
		if err == nil {
			image, err = mutate.AppendLayers(image, layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Config.Cmd = []string{"/x"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	index, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = index.AppendImage(image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func checkMerged(t *testing.T, layout string) {
	t.Helper()
	f := newFetcher(t)
	image, err := f.Import(t.Context(), layout)
	if err != nil {
		t.Fatal(err)
	}
	order, err := f.Store.Catalog(f.Ring, nil).Layers(image)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "merged.aci"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := f.Store.ExportMerged(order, file, images.Zstandard)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := newFetcher(t).Import(t.Context(), file.Name())
	if err != nil || merged.ID != id || len(merged.Manifest.Dependencies) > 0 || merged.Manifest.Name != image.Manifest.Name || merged.Manifest.App == nil {
		t.Fatalf("%+v, %v", merged, err)
	}
	want, err := build.Tree(mount(t, order), true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := build.Tree(merged.Rootfs(), true)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(build.Entry{}, "Source"), cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}
