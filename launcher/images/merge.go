package images

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"kurma.io/stager/build"

	"golang.org/x/sys/unix"
)

// ExportMerged writes a new file that Import takes, of one image with the files of all images of order, which is that
// of Layers, and without dependencies. It returns the file's ID. Images with a pathWhitelist are not Mergeable.
func (s *Store) ExportMerged(order []*Image, to *os.File, as Compression) (id string, err error) {
	var layers [][]build.Entry
	for _, image := range slices.Backward(order) {
		entries, err := build.Tree(image.Rootfs(), true)
		if err != nil {
			return "", fmt.Errorf("export image %s: %w", order[0].ID, err)
		}
		layers = append(layers, entries)
	}
	document, err := withoutDependencies(order[0].Manifest.Raw)
	if err != nil {
		return "", fmt.Errorf("export image %s: %w", order[0].ID, err)
	}
	return exportBuilt(order[0], document, merge(layers, func(e build.Entry) bool { return isOpaque(e.Source) }), to, as)
}

// Mergeable reports whether the files of the images are those of their layers, one over the other, and no signature of
// the first is lost when they are merged.
func Mergeable(order []*Image) bool {
	return order[0].Record.Seal == "" && whole(order)
}

// whole reports whether no image has a pathWhitelist.
func whole(order []*Image) bool {
	return !slices.ContainsFunc(order, func(image *Image) bool {
		var filter struct{ PathWhitelist []string }
		return json.Unmarshal(image.Manifest.Raw, &filter) != nil || len(filter.PathWhitelist) > 0
	})
}

func withoutDependencies(raw []byte) ([]byte, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	delete(document, "dependencies")
	return json.Marshal(document)
}

// isOpaque reports whether a folder hides what the layers below have in it.
func isOpaque(folder string) bool {
	value := make([]byte, 1)
	n, err := unix.Lgetxattr(folder, "trusted.overlay.opaque", value)
	return err == nil && string(value[:n]) == "y"
}

// merge returns the entries of a root whose layers, the lowest first, have these entries, each a folder before its
// files. A character device 0:0 hides what is below it, as overlayfs has it; no such device is in the result.
func merge(layers [][]build.Entry, opaque func(build.Entry) bool) []build.Entry {
	merged := make(map[string]build.Entry)
	for _, layer := range layers {
		hide(merged, layer, opaque)
		own := make(map[string]build.Entry)
		for _, e := range layer {
			own[e.Name] = e
			switch {
			case e.Type == tar.TypeChar && e.DevMajor == 0 && e.DevMinor == 0:
				delete(merged, e.Name)
			case e.Type == tar.TypeLink: // to a file that a layer above may replace
				first := own[e.Link]
				first.Name = e.Name
				merged[e.Name] = first
			default:
				merged[e.Name] = e
			}
		}
	}
	return linked(slices.SortedFunc(maps.Values(merged), func(a, b build.Entry) int {
		return slices.Compare(strings.Split(a.Name, "/"), strings.Split(b.Name, "/")) // as build.Write sorts them
	}))
}

// hide removes from merged what is below folders that the layer replaces or that are opaque in it. It walks merged
// once, because a hostile image has many such folders.
func hide(merged map[string]build.Entry, layer []build.Entry, opaque func(build.Entry) bool) {
	hides := make(map[string]bool)
	for _, e := range layer {
		if merged[e.Name].Type == tar.TypeDir && (e.Type != tar.TypeDir || opaque(e)) {
			hides[e.Name] = true
		}
	}
	if len(hides) > 0 {
		maps.DeleteFunc(merged, func(name string, _ build.Entry) bool { return hidden(name, hides) })
	}
}

// hidden reports whether a name is below one of hides, where it notes the answer for each folder on its way.
func hidden(name string, hides map[string]bool) bool {
	folder := path.Dir(name)
	if folder == "." {
		return false
	}
	below, known := hides[folder]
	if !known {
		below = hidden(folder, hides)
		hides[folder] = below
	}
	return below
}

// linked makes links of the further names of one file.
func linked(entries []build.Entry) []build.Entry {
	first := make(map[string]string)
	for i, e := range entries {
		if name, again := first[e.Source]; again {
			entries[i].Type, entries[i].Link = tar.TypeLink, name
			continue
		}
		first[e.Source] = e.Name
	}
	return entries
}
