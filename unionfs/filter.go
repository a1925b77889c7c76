package unionfs

import (
	"fmt"
	"maps"
	"path"
	"strings"
)

// Image is what filters the paths of one position in an app's list of images: a path whitelist, and
// the image's place in the tree of dependencies.
type Image struct {
	// Whitelist is the image's pathWhitelist; empty means all paths. Entries are
	// absolute and exact: the entry of a directory does not include its content.
	Whitelist []string

	// Dependents are the positions of the images that depend on this one
	// directly. The app's own image has none.
	Dependents []int
}

// Filter selects the paths of a layer that are part of a root; a nil Filter selects all. Filters makes
// it, and it never changes.
type Filter struct {
	files pathSet // all but directories
	dirs  pathSet
}

// pathSet is a set of slash-separated paths without a leading slash; nil
// holds every path.
type pathSet map[string]bool

func (s pathSet) has(p string) bool { return s == nil || s[p] }

// Filters returns, for each position of an app's list of images (the topmost
// first), the filter of its layer; nil where no whitelist matters. It is an
// error, naming the position, when a Dependents entry is not a position, or an image
// depends on itself.
//
// The rule is appc's (ace.md, Filesystem Setup, and pkg/acirenderer): a file
// stays if its own image's whitelist has it and the whitelist of every image
// on the way from there to the app's image has it; where several ways lead to
// an image, one that lets it through is enough. A directory is never filtered by its own
// image's whitelist, only by the whitelists of images that depend on it. A directory
// that holds a path that stays, stays, with its mode and owner.
func Filters(images []Image) ([]*Filter, error) {
	n := len(images)
	t := filterTree{images: images, state: make([]filterState, n), above: make([]pathSet, n), passed: make([]pathSet, n)}
	filters := make([]*Filter, len(images))
	for i := range images {
		if err := t.settle(i); err != nil {
			return nil, err
		}
		if t.passed[i] != nil {
			filters[i] = &Filter{files: t.passed[i], dirs: t.above[i]}
		}
	}
	return filters, nil
}

// filterTree computes, for each image, the paths that the images above it let through.
type filterTree struct {
	images []Image
	state  []filterState
	above  []pathSet // what the images that depend on it let through
	passed []pathSet // and its own whitelist as well
}

type filterState int

const (
	filterUnknown filterState = iota
	filterUnderWay
	filterSettled
)

// settle computes the paths of image i. It first settles the images that depend on i, because an image
// can be above some of its dependents in the list.
func (t *filterTree) settle(i int) error {
	switch t.state[i] {
	case filterSettled:
		return nil
	case filterUnderWay:
		return fmt.Errorf("filter images: image %d depends on itself", i)
	case filterUnknown:
	}
	t.state[i] = filterUnderWay
	union, all := pathSet{}, len(t.images[i].Dependents) == 0
	for _, d := range t.images[i].Dependents {
		if d < 0 || d >= len(t.images) {
			return fmt.Errorf("filter images: image %d is a dependency of image %d, which does not exist", i, d)
		}
		if err := t.settle(d); err != nil {
			return err
		}
		all = all || t.passed[d] == nil
		maps.Copy(union, t.passed[d])
	}
	if !all {
		t.above[i] = union
	}
	t.passed[i] = intersect(listed(t.images[i].Whitelist), t.above[i])
	t.state[i] = filterSettled
	return nil
}

// listed converts a whitelist to a set. An empty list means no whitelist.
func listed(whitelist []string) pathSet {
	if len(whitelist) == 0 {
		return nil
	}
	set := make(pathSet, len(whitelist))
	for _, p := range whitelist {
		set[strings.TrimPrefix(path.Clean("/"+p), "/")] = true
	}
	return set
}

func intersect(a, b pathSet) pathSet {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	both := pathSet{}
	for p := range a {
		if b[p] {
			both[p] = true
		}
	}
	return both
}

// keeps reports whether the path, relative to the layer's top, stays.
func (f *Filter) keeps(p string, dir bool) bool {
	if f == nil {
		return true
	}
	if dir {
		return f.dirs.has(p)
	}
	return f.files.has(p)
}
