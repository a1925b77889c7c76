package main

import (
	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
)

// dependsOn tells whether an image lists another, of the given ID, among its
// dependencies: by ID where it says one, else by name and labels (appc, aci.md,
// dependencies).
func dependsOn(image *manifest.Image, id string, other *manifest.Image) bool {
	for _, d := range image.Dependencies {
		if d.ImageID != nil {
			if d.ImageID.String() == id {
				return true
			}
			continue
		}
		if d.ImageName == other.Name && hasLabels(other.Labels, d.Labels) {
			return true
		}
	}
	return false
}

func hasLabels(have, want types.Labels) bool {
	for _, l := range want {
		if v, ok := have.Get(l.Name.String()); !ok || v != l.Value {
			return false
		}
	}
	return true
}
