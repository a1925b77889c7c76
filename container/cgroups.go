package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// cgroupView returns what the container gets as /sys/fs/cgroup: the stager's cgroups for a privileged container, its own
// cgroup and those below it for another one, "" where no cgroups are mounted. made reports that this is a folder that
// makeCgroupView makes, because there are several hierarchies.
func (c *container) cgroupView() (dir string, made bool) {
	switch {
	case len(c.runtime.hierarchies) == 0:
		return "", false
	case c.spec.Privileged:
		return names.CgroupDir, false
	case slices.Equal(c.runtime.hierarchies, []string{""}):
		return filepath.Join(names.CgroupDir, c.spec.Cgroup), false
	default:
		return filepath.Join(c.runtime.state, c.id, "cgroup"), true
	}
}

// makeCgroupView mounts the container's cgroup of each hierarchy below dir. The caller calls done once the container has its
// copies of the mounts.
//
// libcontainer could mount each of them, but would take half a millisecond for each. Its mount of type "cgroup" also reads the
// mounts of the whole machine, and mounts file systems, for each of which the kernel allocates a superblock.
func (c *container) makeCgroupView(dir string) (done func(), err error) {
	done = func() { _ = unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) } // it may not be mounted
	if err := c.mountCgroups(dir); err != nil {
		done()
		return nil, fmt.Errorf("show cgroups: %w", err)
	}
	return done, nil
}

func (c *container) mountCgroups(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", noSuidExecDev, "mode=755,size=64k"); err != nil {
		return os.NewSyscallError("mount", err)
	}
	for _, h := range c.runtime.hierarchies {
		own, target := filepath.Join(names.CgroupDir, h, c.spec.Cgroup), filepath.Join(dir, h)
		// libcontainer makes the cgroup too, but after its process has its mount namespace.
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(own, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", own, err)
		}
	}
	return nil
}
