package unionfstest

import (
	"context"
	"slices"
	"testing"

	"kurma.io/stager/tests/conformance"
	"kurma.io/stager/unionfs"
)

func TestMain(m *testing.M) { Main(m) }

// topmost is a driver that mounts the topmost layer alone, and declares so.
type topmost struct{ unionfs.Copy }

func (d topmost) Mount(ctx context.Context, r unionfs.Root) error {
	if len(r.Layers) > 1 {
		r.Layers = r.Layers[:1]
	}
	return d.Copy.Mount(ctx, r)
}

// A declared case is run on a bench of its own, and its layers and mounts are gone afterwards.
func TestADeclaredCaseLeavesNothing(t *testing.T) {
	const merge = "directories merge"
	all := casesOf(topmost{})
	n := slices.IndexFunc(all, func(c conformance.Case) bool { return c.Name == merge })
	conformance.Run(t, "topmost", all[n:n+1], Unmet{merge: "it mounts the topmost layer alone"})
}
