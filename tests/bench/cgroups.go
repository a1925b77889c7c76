package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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

// killTree kills all processes in a cgroup and those below it, and waits until
// they are gone.
func killTree(dir string) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pids, err := processesBelow(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d of cgroup %s: %w", pid, dir, err)
			}
		}
	}
	return fmt.Errorf("kill cgroup %s: it is not empty after 10 seconds", dir)
}

func processesBelow(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		text, err := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			if pid, e := strconv.Atoi(field); e == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}
