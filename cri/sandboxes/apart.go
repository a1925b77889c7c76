package sandboxes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// apart calls attach, which mounts in the mount with that root. What attach mounts appears on no other mount: a shared
// mount leaves its peers meanwhile, and is one of them again afterwards, which needs Linux 5.15 (MOVE_MOUNT_SET_GROUP).
func apart(root *os.File, attach func() error) error {
	shared, err := isShared(root)
	if err != nil {
		return err
	}
	if !shared {
		return attach()
	}
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH
	peer, err := unix.OpenTree(int(root.Fd()), "", flags)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer func() { _ = unix.Close(peer) }()
	private := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(int(root.Fd()), "", unix.AT_EMPTY_PATH, &private); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	err = attach()
	const join = unix.MOVE_MOUNT_SET_GROUP | unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if joining := unix.MoveMount(peer, "", int(root.Fd()), "", join); joining != nil {
		err = errors.Join(err, fmt.Errorf("share the outer mount again: %w", joining))
	}
	return err
}

// isShared reports whether a mount propagates to others (proc_pid_mountinfo(5)).
func isShared(f *os.File) (bool, error) {
	id, err := mountOf(f)
	if err != nil {
		return false, err
	}
	all, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return uint64(m.ID) != id, false })
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	shared := func(m *mountinfo.Info) bool { return strings.Contains(m.Optional, "shared:") }
	return slices.ContainsFunc(all, shared), nil
}

func onOtherMounts(a, b *os.File) (bool, error) {
	one, err := mountOf(a)
	if err != nil {
		return false, err
	}
	other, err := mountOf(b)
	return one != other, err
}

// mountOf returns the mount's number in /proc/self/mountinfo.
func mountOf(f *os.File) (uint64, error) {
	var stat unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil {
		return 0, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	return stat.Mnt_id, nil
}
