package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// tree is a tree of mounts that is detached from every mount namespace (open_tree(2), mount_setattr(2), Linux 5.12),
// and the place where the shim attaches it in the container.
type tree struct {
	file   *os.File
	target string
}

// cgroupTrees returns what the container has as /sys/fs/cgroup, in the order in which the shim attaches it: the
// stager's cgroups, writable, for a privileged container; its own cgroup and those below it, read-only, for another
// one, whose cgroups it makes; nothing where no cgroups are mounted, or where they would be mounted in a volume that is
// shared with the host: they would go out to it, and stay there. The caller closes the trees, also after an error.
//
// libcontainer could mount the cgroups, but takes half a millisecond for each hierarchy. Mounts in the supervisor's own
// mount namespace would be copied into that of each container that starts meanwhile.
func (c *container) cgroupTrees() ([]tree, error) {
	if len(c.runtime.hierarchies) == 0 || slices.ContainsFunc(c.spec.Mounts, sharesCgroupDir) {
		return nil, nil
	}
	if c.spec.Privileged {
		// Like all other mounts of a container: it sees what the daemon mounts later.
		slave := unix.MountAttr{Propagation: unix.MS_SLAVE}
		all, err := c.runtime.openTree(names.CgroupDir, names.CgroupDir, unix.AT_RECURSIVE, slave)
		return []tree{all}, err
	}
	restricted := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	var trees []tree
	if c.runtime.folders != "" {
		folders, err := c.runtime.openTree(c.runtime.folders, names.CgroupDir, 0, restricted)
		trees = append(trees, folders)
		if err != nil {
			return trees, err
		}
	}
	for _, h := range c.runtime.hierarchies {
		own, err := c.cgroupTree(h, restricted)
		trees = append(trees, own)
		if err != nil {
			return trees, err
		}
	}
	return trees, nil
}

// sharesCgroupDir tells whether mounts at /sys/fs/cgroup would go out of the container by m.
func sharesCgroupDir(m spec.Mount) bool {
	return propagationOf(m) == unix.MS_SHARED && (m.Target == names.CgroupDir || spec.Inside(names.CgroupDir, m.Target))
}

// cgroupTree makes the container's cgroup in a hierarchy, and returns its tree. libcontainer makes the cgroup too,
// but not before the process that needs the tree.
func (c *container) cgroupTree(hierarchy string, attributes unix.MountAttr) (tree, error) {
	target := filepath.Join(names.CgroupDir, hierarchy)
	own := filepath.Join(target, c.spec.Cgroup)
	err := os.Mkdir(own, 0o755)
	if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(own, 0o755)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return tree{}, err
	}
	return c.runtime.openTree(own, target, 0, attributes)
}

// openTree is the function openTree, on a kernel without mount_setattr(2) as well.
func (r *Runtime) openTree(path, target string, recursive uint, attributes unix.MountAttr) (tree, error) {
	if r.attributes {
		return openTree(path, target, recursive, attributes)
	}
	r.binding.Lock()
	defer r.binding.Unlock()
	return openOldTree(path, target, recursive, attributes)
}

// openTree returns a detached copy of the mount at path, or with AT_RECURSIVE also of those below it. The caller closes
// it.
func openTree(path, target string, recursive uint, attributes unix.MountAttr) (tree, error) {
	t, err := cloneTree(path, target, recursive)
	if err != nil {
		return tree{}, err
	}
	if err := unix.MountSetattr(int(t.file.Fd()), "", unix.AT_EMPTY_PATH|recursive, &attributes); err != nil {
		t.file.Close()
		return tree{}, &os.PathError{Op: "mount_setattr", Path: path, Err: err}
	}
	return t, nil
}

func cloneTree(path, target string, recursive uint) (tree, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|recursive)
	if err != nil {
		return tree{}, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return tree{file: os.NewFile(uintptr(fd), path), target: target}, nil
}

func closeTrees(trees []tree) { closeAll(treeFiles(trees)) }

func treeFiles(trees []tree) (files []*os.File) {
	for _, t := range trees {
		files = append(files, t.file)
	}
	return files
}

// makeCgroupFolders mounts the file system with the folders on which the shim attaches the cgroups of several
// hierarchies. It is the same one for all containers. Only an app with CAP_SYS_ADMIN can write to it, and what it
// writes takes no space from the runtime.
func (r *Runtime) makeCgroupFolders(dir string) error {
	if len(r.hierarchies) == 0 || slices.Equal(r.hierarchies, []string{""}) {
		return nil
	}
	r.folders = filepath.Join(dir, "cgroup")
	if err := os.Mkdir(r.folders, 0o755); err != nil {
		return fmt.Errorf("make folders of cgroups: %w", err)
	}
	if err := unix.Mount("tmpfs", r.folders, "tmpfs", noSuidExecDev, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount folders of cgroups: %w", err)
	}
	for _, h := range r.hierarchies {
		if err := os.Mkdir(filepath.Join(r.folders, h), 0o755); err != nil {
			return fmt.Errorf("make folders of cgroups: %w", err)
		}
	}
	return nil
}
