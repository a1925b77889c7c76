package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/tests/clause"
)

// imageList reads images, the topmost first, as "NAME:VERSION DEPENDENCY…",
// of which a DEPENDENCY is NAME, NAME:VERSION or the place of an image, for its ID.
func imageList(t *testing.T, lines ...string) []layerImage {
	t.Helper()
	id := func(n int) string { return "sha512-" + strings.Repeat(fmt.Sprintf("%08x", n), 16) }
	split := func(word string) (types.ACIdentifier, types.Labels) {
		name, version, _ := strings.Cut(word, ":")
		if version == "" {
			return types.ACIdentifier(name), nil
		}
		return types.ACIdentifier(name), types.Labels{{Name: "version", Value: version}}
	}
	var list []layerImage
	for n, line := range lines {
		words := strings.Fields(line)
		image := &manifest.Image{ImageManifest: new(schema.ImageManifest)}
		image.Name, image.Labels = split(words[0])
		for _, word := range words[1:] {
			var d types.Dependency
			var place int
			if _, err := fmt.Sscanf(word, "#%d", &place); err == nil {
				hash, err := types.NewHash(id(place))
				if err != nil {
					t.Fatal(err)
				}
				d.ImageID = hash
			}
			d.ImageName, d.Labels = split(word)
			image.Dependencies = append(image.Dependencies, d)
		}
		list = append(list, layerImage{id: id(n), image: image})
	}
	return list
}

func TestDependentsAreThoseResolved(t *testing.T) {
	clause.Covers(t, "C-FS-05")
	tests := []struct {
		name   string
		images []string
		want   [][]int
	}{
		{"alone", []string{"a:1"}, [][]int{nil}},
		{"chain", []string{"a:1 b", "b:1 c", "c:1"}, [][]int{nil, {0}, {1}}},
		{"diamond", []string{"a:1 b c", "c:1 base", "base:1", "b:1 base"}, [][]int{nil, {0}, {1, 3}, {0}}},
		{"by ID", []string{"a:1 #2 #1", "x:1", "x:1"}, [][]int{nil, {0}, {0}}},
		{
			"two versions, the second for no version",
			[]string{"a:1 x b", "b:1 x:1", "x:1", "x:2"},
			[][]int{nil, {0}, {1}, {0}},
		},
		{
			"two versions, both named",
			[]string{"a:1 x:2 b", "b:1 x:1", "x:1", "x:2"},
			[][]int{nil, {0}, {1}, {0}},
		},
		{"a list of another order", []string{"a:1 b c", "b:1", "c:1"}, [][]int{nil, {0}, {0}}},
		{"one that no image depends on", []string{"a:1 b", "b:1", "z:1"}, [][]int{nil, {0}, nil}},
		{"of itself", []string{"a:1 a"}, [][]int{nil}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, dependents(imageList(t, test.images...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
