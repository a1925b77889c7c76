package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// A container gets the host's own node, so that a spec that wants another one is refused.
func TestNodesOfTheHostAreAsTheirSpecsWant(t *testing.T) {
	null := unix.Stat_t{Mode: unix.S_IFCHR | 0o666, Rdev: unix.Mkdev(1, 3), Uid: 0, Gid: 5}
	mode, other, id, zero := os.FileMode(0o666), os.FileMode(0o600), uint32(5), uint32(0)
	for name, test := range map[string]struct {
		want specs.DeviceNode
		err  string
	}{
		"whatever is there": {specs.DeviceNode{}, ""},
		"all":               {specs.DeviceNode{Type: "c", Major: 1, Minor: 3, FileMode: &mode, UID: &zero, GID: &id}, ""},
		"unbuffered":        {specs.DeviceNode{Type: "u", Major: 1, Minor: 3}, ""},
		"kind alone":        {specs.DeviceNode{Type: "c"}, ""},
		"other kind":        {specs.DeviceNode{Type: "b"}, "device c 1:3: its spec wants b 0:0"},
		"other number":      {specs.DeviceNode{Type: "c", Major: 1, Minor: 5}, "device c 1:3: its spec wants c 1:5"},
		"other mode":        {specs.DeviceNode{FileMode: &other}, "mode 0666: its spec wants 0600"},
		"other owner":       {specs.DeviceNode{UID: &id}, "owner 0:5: its spec wants another"},
		"other group":       {specs.DeviceNode{GID: &zero}, "owner 0:5: its spec wants another"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkNode(test.want, null)
			if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("%v, want %q", err, test.err)
			}
		})
	}
	if err := checkNode(specs.DeviceNode{}, unix.Stat_t{Mode: unix.S_IFREG}); err == nil || err.Error() != "not a device node" {
		t.Errorf("%v", err)
	}
}

// What a device needs is not made on the host.
func TestPathsOfDevicesAreNotMade(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	if _, err := findNode(missing, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if real, err := findNode(filepath.Join(dir, "link"), &specs.DeviceNode{Type: "c", Major: 1, Minor: 3}); real != "/dev/null" || err != nil {
		t.Errorf("%q, %v", real, err)
	}
}
