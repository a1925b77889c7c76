package goinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// becomeSupervisor enters the stager's cgroup and mount namespace, and executes this program there as the supervisor.
// It returns an error only.
func becomeSupervisor() error {
	runtime.LockOSThread() // the namespace is this thread's, and execve(2) ends the others
	if err := errors.Join(enterLeaf(), enterMountNamespace()); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	unix.Umask(0o022) // whatever the daemon's is: files are made in the stager's root
	env := append(os.Environ(), names.RoleVariable+"="+roleSupervisor)
	return &os.PathError{Op: "exec", Path: "/proc/self/exe", Err: unix.Exec("/proc/self/exe", os.Args[:1], env)}
}

// enterMountNamespace moves this thread to a new mount namespace, in which the stager's root is the
// namespace's root and not a chroot below the host's: a process that leaves the chroot, by setns(2)
// for instance, is still in the stager's root. The daemon's later mounts still appear in it.
func enterMountNamespace() error {
	// CLONE_FS: a thread that shares its root with others cannot change it (setns(2)).
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(root)
	own, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open mount namespace: %w", err)
	}
	defer unix.Close(own)
	// Joining a mount namespace leads to its root, one's own included (setns(2)).
	if err := unix.Setns(own, unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if err := makeSlaves(root); err != nil {
		return err
	}
	if err := unix.Fchdir(root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	path, err := unix.Getwd()
	if err != nil || path == "/" {
		return err // the daemon has made it the root
	}
	return pivot(path)
}

// makeSlaves makes all mounts slaves but those of the volumes in the stager's root, for the reason that package pid1
// has (enter_mount_namespace in enter.c).
func makeSlaves(root int) error {
	volumes := strings.TrimPrefix(names.VolumesDir, "/")
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE
	tree, missing := unix.OpenTree(root, volumes, flags)
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slaves of the stager's: %w", err)
	}
	if missing != nil {
		return nil
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", root, volumes, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount volumes: %w", err)
	}
	return nil
}

// pivot makes the folder at path the root of the mount namespace (pivot_root(2), NOTES), and the working directory.
func pivot(path string) error {
	old, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(old)
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make root a mount point: %w", err)
	}
	if err := unix.Chdir(path); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	switch err := unix.PivotRoot(".", "."); {
	case errors.Is(err, unix.EINVAL):
		// The host runs from its initial RAM disk, which cannot be moved away; to be mounted over
		// hides it as well.
		err := unix.Mount(path, "/", "", unix.MS_MOVE, "")
		if err == nil {
			err = unix.Chroot(".")
		}
		if err != nil {
			return fmt.Errorf("move root: %w", err)
		}
	case err != nil:
		return os.NewSyscallError("pivot_root", err)
	default:
		return detach(old)
	}
	return nil
}

// detach detaches the host's root, which pivot_root(2) has put on top of the new one. Its mounts become slaves first:
// an unmount of the volumes that the daemon shares with the host would unmount what lies in them there, and in the new
// root.
func detach(old int) error {
	err := unix.Fchdir(old)
	if err == nil {
		err = unix.Mount("", ".", "", unix.MS_SLAVE|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("make host's mounts slaves: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach host's root: %w", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// enterLeaf enters a leaf cgroup if only cgroup v2 is mounted: a cgroup that has processes cannot
// enable controllers for its children (cgroups(7), "no internal processes"). The apps' cgroups will
// be siblings of the leaf.
func enterLeaf() error {
	var fs unix.Statfs_t
	if unix.Statfs(names.CgroupDir, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	leaf := filepath.Join(names.CgroupDir, names.LeafCgroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0)
}
