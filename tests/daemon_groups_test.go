package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hierarchies lists the mount points of the cgroup hierarchies: /sys/fs/cgroup
// itself, or folders in it.
func hierarchies() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); strings.Contains(line, " - cgroup") {
			all = append(all, fields[4])
		}
	}
	return all, nil
}

// makeGroups makes a control group in every hierarchy. A cpuset of version 1 is
// given its parent's processors: nobody may enter one without (cpuset(7)).
func makeGroups(b *box, path string) {
	b.t.Helper()
	mounts, err := hierarchies()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, mount := range mounts {
		dir := mount
		for name := range strings.SplitSeq(path, "/") {
			parent := dir
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				b.t.Fatal(err)
			}
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if data, err := os.ReadFile(filepath.Join(parent, file)); err == nil {
					_ = os.WriteFile(filepath.Join(dir, file), data, 0) // version 2 inherits
				}
			}
		}
	}
}

// removeGroups removes the box's groups as the daemon does when its stager has
// ended, children first.
func removeGroups(b *box) {
	b.t.Helper()
	for _, group := range b.groups() {
		var dirs []string
		_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := unix.Rmdir(dir); err != nil {
				b.t.Errorf("remove %s: %v", dir, err)
			}
		}
	}
}

func joinGroups(p daemonPlan) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if err := os.WriteFile(filepath.Join(mount, p.Cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// mountGroups shows the stager its own group as the root of each hierarchy.
func mountGroups(p daemonPlan) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	if len(mounts) > 1 {
		if err := unix.Mount("tmpfs", filepath.Join(p.Root, "sys/fs/cgroup"), "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs for cgroups: %w", err)
		}
	}
	for _, mount := range mounts {
		target := filepath.Join(p.Root, mount)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(filepath.Join(mount, p.Cgroup), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return nil
}
