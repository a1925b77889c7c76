package container

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// What libcontainer's starts do before Linux 5.12, or where a filter around the stager denies mount_setattr(2).

// setsAttributes reports whether mount_setattr(2) works.
func setsAttributes() bool { return unix.MountSetattr(-1, "", 0, &unix.MountAttr{}) == nil }

// withoutAttributes has libcontainer restrict binds by mount(2), which keeps no flag of the source and does not reach
// the mounts inside: a source with such mounts is refused.
func withoutAttributes(mounts []*configs.Mount) error {
	for _, m := range mounts {
		if m.RecAttr == nil {
			continue
		}
		inside, err := mountinfo.GetMounts(mountinfo.PrefixFilter(m.Source))
		if err != nil {
			return fmt.Errorf("list mounts: %w", err)
		}
		others := func(i *mountinfo.Info) bool { return i.Mountpoint != m.Source }
		if m.Flags&unix.MS_REC != 0 && slices.ContainsFunc(inside, others) {
			return fmt.Errorf("mount at %s is read-only, nosuid or nodev, and has mounts inside: needs Linux 5.12",
				m.Destination)
		}
		own, err := flagsOf(m.Source)
		if err != nil {
			return err
		}
		m.Flags, m.RecAttr = m.Flags|int(m.RecAttr.Attr_set)|own, nil
	}
	return nil
}

// flagsOf returns the flags of the mount that has path, as in mount(2): read-only, nosuid, nodev and noexec.
func flagsOf(path string) (int, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int(fs.Flags) & (unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC), nil
}

// openOldTree is openTree without mount_setattr(2). It mounts the folder at path over itself for a moment, so two calls
// must not be under way at once.
func openOldTree(path, target string, recursive uint, attributes unix.MountAttr) (t tree, err error) {
	var all uintptr
	if recursive != 0 {
		all = unix.MS_REC
	}
	own, err := flagsOf(path)
	if err != nil {
		return tree{}, err
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND|all, ""); err != nil {
		return tree{}, &os.PathError{Op: "bind", Path: path, Err: err}
	}
	defer func() { err = errors.Join(err, unix.Unmount(path, unix.MNT_DETACH)) }()
	if err := unix.Mount("", path, "", uintptr(attributes.Propagation)|all, ""); err != nil {
		return tree{}, &os.PathError{Op: "set propagation", Path: path, Err: err}
	}
	if flags := uintptr(attributes.Attr_set); flags != 0 {
		if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|flags|uintptr(own), ""); err != nil {
			return tree{}, &os.PathError{Op: "remount", Path: path, Err: err}
		}
	}
	return cloneTree(path, target, recursive)
}
