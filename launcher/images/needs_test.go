package images

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What an image depends on by its name alone is needed as well, whichever version is meant.
func TestDependenciesByNameAreNeeded(t *testing.T) {
	image := func(id, name string, needs ...Dependency) *Image {
		return &Image{ID: id, Manifest: &Manifest{Name: name, Dependencies: needs}}
	}
	all := []*Image{
		image("1", "top", Dependency{Name: "middle"}), image("2", "middle", Dependency{Name: "base", ID: "3"}),
		image("3", "base"), image("4", "base"), image("5", "middle"),
	}
	got := slices.Sorted(maps.Keys(Needed(all, all[:1])))
	if want := []string{"2", "3", "5"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A layer stays while an image that may need it is damaged, and no list is made while an image cannot be read.
func TestLayersOfAnImageThatIsNotReadStay(t *testing.T) {
	s := newStore(t)
	layer, err := s.importData(t, archive(t, strings.Replace(testManifest, "example.com/a", LayerName("x"), 1), dir("rootfs")))
	if err != nil {
		t.Fatal(err)
	}
	top, err := s.importData(t, archive(t, testManifest, dir("rootfs")))
	if err != nil {
		t.Fatal(err)
	}
	unneeded := func(gone ...string) []*Image {
		t.Helper()
		all, err := s.List()
		if err != nil || len(all) != 2 {
			t.Fatalf("%d images, %v", len(all), err)
		}
		return Unneeded(all, slices.DeleteFunc(slices.Clone(all), func(i *Image) bool { return !slices.Contains(gone, i.ID) }))
	}
	if got := unneeded(); len(got) != 1 || got[0].ID != layer.ID {
		t.Errorf("%d images, want the layer, which no image needs", len(got))
	}
	manifest := filepath.Join(top.Dir, manifestFile)
	if err := os.Truncate(manifest, 0); err != nil {
		t.Fatal(err)
	}
	if got := unneeded(); len(got) != 0 {
		t.Errorf("%d layers are not needed although an image is damaged", len(got))
	}
	if got := unneeded(top.ID); len(got) != 1 {
		t.Errorf("%d layers, want the one that the damaged image leaves", len(got))
	}
	// A loop of links stands for an error that may pass, such as of a process without free descriptors.
	if err := errors.Join(os.Remove(manifest), os.Symlink(manifest, manifest)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); err == nil || !strings.Contains(err.Error(), "read image "+top.ID+": open ") {
		t.Errorf("%d images, %v", len(all), err)
	}
	if _, err := s.Get(top.ID); err == nil || strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	if got := unneeded(); len(got) != 0 {
		t.Errorf("%d layers are not needed although an image has lost its manifest", len(got))
	}
}
