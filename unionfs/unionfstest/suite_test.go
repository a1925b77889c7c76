package unionfstest

import (
	"context"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

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

// readOnly is a driver whose roots nobody writes into.
type readOnly struct{ unionfs.Copy }

func (d readOnly) Mount(ctx context.Context, r unionfs.Root) error {
	if err := d.Copy.Mount(ctx, r); err != nil {
		return err
	}
	return unix.Mount("", r.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// The core has cases that a driver of read-only roots does not pass, so such a driver passes with no declaration.
func TestTheCoreRefusesAReadOnlyDriver(t *testing.T) {
	found, unmet := []conformance.Case{}, Unmet{}
	for _, c := range casesOf(readOnly{}) {
		if c.Core {
			c.Core = false
			found = append(found, c)
		}
	}
	if len(found) != len(core()) {
		t.Errorf("%d cases of the core, want the %d named", len(found), len(core()))
	}
	for _, name := range []string{"deleted stays deleted", "a clean copy for every start", "unmount"} {
		unmet[name] = "its roots are read-only"
	}
	conformance.Run(t, "read-only", found, unmet)
}
