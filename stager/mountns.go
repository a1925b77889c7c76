package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// enterMountNamespace gives the calling OS thread, which must be locked and is
// of no other use afterwards, a mount namespace whose root is the stager's root.
//
// The daemon has put the stager into a chroot, and a chroot is not enough for
// what the supervisor starts: the namespace's own root would still be the
// host's, setns(2) would lead there, and so would an app's CAP_SYS_CHROOT. What
// the daemon mounts later still comes in; nothing goes out.
func enterMountNamespace() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	// Not before: an open directory stays in the namespace it was opened in.
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer unix.Close(root)
	if err := leaveChroot(); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slaves of the stager's: %w", err)
	}
	if err := unix.Fchdir(root); err != nil {
		return fmt.Errorf("change to root: %w", err)
	}
	path, err := unix.Getwd()
	if err != nil {
		return fmt.Errorf("find root: %w", err)
	}
	if path == "/" {
		return nil // the daemon has done it already
	}
	return pivot(path)
}

// leaveChroot takes the thread to the root of its mount namespace, which is
// what joining a mount namespace does, one's own included (setns(2)).
func leaveChroot() error {
	own, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open own mount namespace: %w", err)
	}
	defer unix.Close(own)
	if err := unix.Setns(own, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave chroot: %w", err)
	}
	return nil
}

// pivot makes the directory the root of the mount namespace and takes
// everything else out of it.
func pivot(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make root a mount point: %w", err)
	}
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("change to root: %w", err)
	}
	switch err := unix.PivotRoot(".", "."); err {
	case nil:
		// The old root is mounted on top of the new one now (pivot_root(2), NOTES).
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return fmt.Errorf("detach host's root: %w", err)
		}
	case unix.EINVAL:
		// The host runs from its initial RAM disk, which cannot be moved away;
		// to be mounted over hides it as well.
		if err := unix.Mount(dir, "/", "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move root: %w", err)
		}
		if err := unix.Chroot("."); err != nil {
			return fmt.Errorf("change root: %w", err)
		}
	default:
		return fmt.Errorf("pivot root: %w", err)
	}
	return unix.Chdir("/")
}
