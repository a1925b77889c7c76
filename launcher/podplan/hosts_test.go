package podplan

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/launcher/pods"
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

func TestAddedHostsAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"db:10.0.0.2": "db 10.0.0.2", "a.example:::1": "a.example ::1", "a_b-1:[2001:db8::1]": "a_b-1 2001:db8::1",
		"db": "", "db:": "", ":10.0.0.2": "", "a b:10.0.0.2": "", "#:10.0.0.2": "", ".a:10.0.0.2": "", "a-:10.0.0.2": "",
		"db:fe80::1%eth0": "", "db:10.0.0": "", "db:host-gateway": "", "Localhost:10.0.0.2": "", "a\nb:10.0.0.2": "",
		strings.Repeat("a", 254) + ":10.0.0.2": "",
	} {
		got, err := ParseHost(text)
		if (err != nil) != (want == "") || err == nil && got.Name+" "+got.Address.String() != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// An app that would not see the added hosts is an error, and not a pod without them.
func TestAddedHostsNeedAPlace(t *testing.T) {
	options := Options{AddHosts: []pods.Host{{Name: "db", Address: netip.MustParseAddr("10.0.0.2")}}, NoNetwork: true}
	plan, _, err := newPlanner().FromManifest("p.json", []byte(wholePod), options)
	if err != nil || !slices.ContainsFunc(plan.Volumes, func(v pods.Volume) bool { return v.Hosts }) || len(plan.AddedHosts) != 1 {
		t.Errorf("%+v, %v", plan.Volumes, err)
	}
	covered := strings.Replace(wholePod, `"path": "/v"`, `"path": "/etc"`, 1)
	if _, _, err := newPlanner().FromManifest("p.json", []byte(covered), options); err == nil || !strings.Contains(err.Error(), `app "a": add hosts: `) {
		t.Errorf("a volume at /etc: %v", err)
	}
}
