package plan

import (
	"slices"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
)

// layerImage is an image of an app's list, the manifest nil where the stager's
// manifest has none.
type layerImage struct {
	id    string
	image *manifest.Image
}

// dependents finds, for each image of an app's list, the topmost first, those that
// were resolved to it: their places in the list.
//
// Where several versions of an image are in the list, a dependency by its name may mean
// either. The list tells which, as long as they come for the first time: it is the tree written down, an image before what
// it depends on, the last dependency first, and each image once (appc, ace.md,
// Filesystem Setup). A list that is not so has every image depend on all that
// it could mean.
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

// tree is a list of images on its way back to the tree that it was made of.
type tree struct {
	list   []layerImage
	above  [][]int // the result
	placed int     // the images so far
	way    []int   // from the app's image to the one that is looked at
}

// add finds the dependencies of the ith image, and theirs. It says false where
// the list has something else in their place.
func (t *tree) add(i int) bool {
	if t.list[i].image == nil {
		return true
	}
	t.way = append(t.way, i)
	defer func() { t.way = t.way[:len(t.way)-1] }()
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
		if j < 0 || slices.Contains(t.way, j) {
			return false
		}
		t.above[j] = append(t.above[j], i)
	}
	return true
}

// is tells whether a dependency can mean the image: by ID where it says one,
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
