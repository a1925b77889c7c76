package podplan

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The hosts file gives way to an image in which its path leads elsewhere or is a folder: such pods have always started.
func TestAnImageMayHaveNoPlaceForTheHostsFile(t *testing.T) {
	for name, test := range map[string]struct {
		make func(root string) error
		want bool
	}{
		"nothing":       {func(string) error { return nil }, true},
		"a folder /etc": {func(root string) error { return os.Mkdir(filepath.Join(root, "etc"), 0o755) }, true},
		"a file": {func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.WriteFile(filepath.Join(root, "etc/hosts"), nil, 0o644))
		}, true},
		"a linked /etc": {func(root string) error { return os.Symlink("/config", filepath.Join(root, "etc")) }, false},
		"a link": {func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.Symlink("/data/hosts", filepath.Join(root, "etc/hosts")))
		}, false},
		"a folder": {func(root string) error { return os.MkdirAll(filepath.Join(root, "etc/hosts"), 0o755) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, all := newPlanner(), newShelf()
			var ids []string
			for _, image := range all {
				image.Dir = t.TempDir()
				ids = append(ids, image.ID)
			}
			p.Images = all
			for _, image := range all {
				if err := os.Mkdir(image.Rootfs(), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := test.make(all[1].Rootfs()); err != nil {
				t.Fatal(err)
			}
			if got, err := p.hasHostsPlace(ids); got != test.want || err != nil {
				t.Errorf("%v, %v; want %v", got, err, test.want)
			}
		})
	}
}
