package images

import (
	"maps"
	"slices"
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
