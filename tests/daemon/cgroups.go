package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/cgroups"
)

// Hierarchies returns the mount points of the cgroup hierarchies: /sys/fs/cgroup
// itself, or folders in it.
func Hierarchies() ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, m := range mounts {
		all = append(all, m.Mountpoint)
	}
	return all, nil
}

// MakeCgroup makes a cgroup and its missing parents in every hierarchy. It copies the parent's
// processors to a cpuset of version 1: no process can enter a cpuset without processors (cpuset(7)).
// With version 2, it enables the controllers in each parent.
func MakeCgroup(path string) error {
	mounts, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		dir := mount
		for name := range strings.SplitSeq(path, "/") {
			parent := dir
			enableControllers(parent)
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if data, err := os.ReadFile(filepath.Join(parent, file)); err == nil {
					_ = os.WriteFile(filepath.Join(dir, file), data, 0) // version 2 inherits
				}
			}
		}
	}
	return nil
}

// enableControllers enables all controllers of version 2 that a cgroup can enable for its children.
func enableControllers(dir string) {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return // version 1
	}
	for name := range strings.FieldsSeq(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0) // some have to stay where they are
	}
}

// RemoveCgroup removes the cgroup of that path and the cgroups below it in each hierarchy, children
// first, as a daemon does when its stager has ended. It is not an error if the cgroup does not exist.
func RemoveCgroup(path string) error {
	mounts, err := Hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, mount := range mounts {
		errs = append(errs, cgroups.RemovePath(filepath.Join(mount, path)))
	}
	return errors.Join(errs...)
}
