package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cgroupMounts returns where the cgroup hierarchies are mounted, /sys/fs/cgroup
// alone on a host with version 2 only.
func cgroupMounts() ([]string, error) {
	// The first thread, /proc/self, may be one that is in another namespace.
	mounts, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			dirs = append(dirs, fields[1])
		}
	}
	return dirs, nil
}

// removeCgroups removes the cgroup of that name and those below it in each
// hierarchy. It is no error when there is none.
func removeCgroups(name string) error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, mount := range mounts {
		errs = append(errs, removeTree(filepath.Join(mount, name)))
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup, children first.
func removeTree(dir string) error {
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			found = append(found, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list cgroup %s: %w", dir, err)
	}
	for _, cgroup := range slices.Backward(found) {
		if err := os.Remove(cgroup); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}
