package server

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// findNode finds a path that a CDI device needs, and refuses one that is not the device node that its spec wants; nil
// wants none.
func findNode(path string, want *specs.DeviceNode) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || want == nil {
		return real, err
	}
	var stat unix.Stat_t
	if err := unix.Stat(real, &stat); err != nil {
		return "", err
	}
	return real, checkNode(*want, stat)
}

// checkNode refuses a device node of the host that is not as a spec wants it: a container gets the host's own node.
func checkNode(want specs.DeviceNode, have unix.Stat_t) error {
	kind := map[uint32]string{unix.S_IFBLK: "b", unix.S_IFCHR: "c"}[have.Mode&unix.S_IFMT]
	switch {
	case kind == "":
		return errors.New("not a device node")
	case want.Type == "u":
		want.Type = "c"
	}
	major, minor := unix.Major(have.Rdev), unix.Minor(have.Rdev)
	numbered := want.Major != 0 // else the host's numbers count
	switch {
	case want.Type != "" && want.Type != kind, numbered && (want.Major != int64(major) || want.Minor != int64(minor)):
		wanted := cmp.Or(want.Type, kind)
		return fmt.Errorf("device %s %d:%d: its spec wants %s %d:%d", kind, major, minor, wanted, want.Major, want.Minor)
	case want.FileMode != nil && uint32(*want.FileMode) != have.Mode&0o7777:
		return fmt.Errorf("mode %#o: its spec wants %#o", have.Mode&0o7777, uint32(*want.FileMode))
	case want.UID != nil && *want.UID != have.Uid, want.GID != nil && *want.GID != have.Gid:
		return fmt.Errorf("owner %d:%d: its spec wants another", have.Uid, have.Gid)
	}
	return nil
}
