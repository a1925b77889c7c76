package plan

import (
	"slices"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
)

// layerImage is an image in an app's list. image is nil if the stager manifest does not have
// the image's manifest.
type layerImage struct {
	id    string
	image *manifest.Image
}

// dependents returns, for each image of an app's list, the topmost first, the images that
// depend on it, as indexes of the list.
//
// If the list has several versions of an image, a dependency by name can mean any of them.
// The order of the list tells which: the list visits each image once, it is the tree of
// dependencies in depth-first order, the last dependency first (appc, ace.md, Filesystem
// Setup). If the list is not in that order, every image depends on all images that its
// dependencies can mean.
func dependents(list []layerImage) [][]int {
	t := tree{list: list, above: make([][]int, len(list)), placed: 1}
	if len(list) > 0 && t.add(0) && t.placed == len(list) {
		return t.above
	}
	above := make([][]int, len(list))
	for i, upper := range list {
		for j := i + 1; j < len(list); j++ {
			if upper.image != nil && slices.ContainsFunc(upper.image.Dependencies, list[j].is) {
				above[j] = append(above[j], i)
			}
		}
	}
	return above
}

// tree rebuilds the tree of dependencies from a list of images.
type tree struct {
	list   []layerImage
	above  [][]int // the result
	placed int     // the number of images placed so far
	path   []int   // from the app's image to the current one
}

// add places the dependencies of the ith image, and their dependencies. It returns false if
// the list has another image in place of one.
func (t *tree) add(i int) bool {
	if t.list[i].image == nil {
		return true
	}
	t.path = append(t.path, i)
	defer func() { t.path = t.path[:len(t.path)-1] }()
	for _, d := range slices.Backward(t.list[i].image.Dependencies) {
		if next := t.placed; next < len(t.list) && t.list[next].is(d) {
			t.placed++
			t.above[next] = append(t.above[next], i)
			if !t.add(next) {
				return false
			}
			continue
		}
		j := slices.IndexFunc(t.list[:t.placed], func(l layerImage) bool { return l.is(d) })
		if j < 0 || slices.Contains(t.path, j) {
			return false
		}
		t.above[j] = append(t.above[j], i)
	}
	return true
}

// is reports whether a dependency can mean the image: by ID if the dependency has one,
// else by name and labels (appc, aci.md, dependencies).
func (l layerImage) is(d types.Dependency) bool {
	if d.ImageID != nil {
		return d.ImageID.String() == l.id
	}
	return l.image != nil && d.ImageName == l.image.Name && hasLabels(l.image.Labels, d.Labels)
}

func hasLabels(have, want types.Labels) bool {
	for _, l := range want {
		if v, ok := have.Get(l.Name.String()); !ok || v != l.Value {
			return false
		}
	}
	return true
}
