package plan

import (
	"fmt"

	"kurma.io/stager/manifest"
	"kurma.io/stager/unionfs"
)

// layersOf returns an app's layers, the topmost first, filtered by the path whitelists of
// their images (appc, aci.md, pathWhitelist). The images' manifests define the tree of
// dependencies.
func layersOf(ids []string, images map[string]*manifest.Image) (layers []Layer, warnings []string, err error) {
	list := make([]layerImage, len(ids))
	for i, id := range ids {
		list[i] = layerImage{id: id, image: images[id]}
	}
	filtered := make([]unionfs.Image, len(list))
	whitelisted := false
	for i, above := range dependents(list) {
		filtered[i].Dependents = above
		if whitelisted && len(above) == 0 {
			warnings = append(warnings, fmt.Sprintf(
				"image %s is not a dependency of any image above it, "+
					"so none of their path whitelists applies to its files", list[i].id))
		}
		if list[i].image != nil {
			filtered[i].Whitelist = list[i].image.PathWhitelist
			whitelisted = whitelisted || len(filtered[i].Whitelist) > 0
		}
	}
	filters, err := unionfs.Filters(filtered)
	if err != nil {
		return nil, nil, fmt.Errorf("path whitelists: %w", err)
	}
	for i, id := range ids {
		layers = append(layers, Layer{ID: id, Filter: filters[i]})
	}
	return layers, warnings, nil
}
