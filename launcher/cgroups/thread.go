package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// EnterThread moves the calling thread, which must be locked to its
// goroutine, into the group in the v1 hierarchies, so that a child it
// forks starts there, and returns what moves it back. The v2 hierarchy is left to
// clone3(2): it does not let a single thread move.
//
// The thread must be moved back before anything is done to the group as a
// whole: freezing or killing the group would take it along.
func (g *Group) EnterThread() (leave func() error, err error) {
	tid := []byte(strconv.Itoa(unix.Gettid()))
	// Opened now: the thread may see other mounts when it leaves.
	homes, err := openTasks()
	if err != nil {
		return nil, fmt.Errorf("find own cgroups: %w", err)
	}
	leave = func() error {
		var errs []error
		for _, home := range homes {
			_, err := home.Write(tid)
			errs = append(errs, err, home.Close())
		}
		return errors.Join(errs...)
	}
	for _, h := range g.Hierarchies {
		if h.V2 {
			continue
		}
		if err := os.WriteFile(filepath.Join(g.Dir(h), "tasks"), tid, 0); err != nil {
			return nil, errors.Join(fmt.Errorf("enter cgroup %s: %w", g.Dir(h), err), leave())
		}
	}
	return leave, nil
}

// openTasks opens the thread lists of the v1 groups that the calling thread is in.
func openTasks() ([]*os.File, error) {
	groups, err := threadGroups()
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, dir := range groups {
		file, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			for _, file := range files {
				_ = file.Close()
			}
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// threadGroups lists the folders of the v1 groups that the calling thread is
// in, from /proc/thread-self/cgroup (cgroups(7)) and the mounts.
func threadGroups() ([]string, error) {
	data, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := v1Mounts()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) != 3 || fields[1] == "" {
			continue // the v2 hierarchy
		}
		if mount, ok := mounts[fields[1]]; ok {
			dirs = append(dirs, mount.dir(fields[2]))
		}
	}
	return dirs, nil
}

// v1Mount is where a v1 hierarchy is mounted, and which of its groups is there.
type v1Mount struct{ point, root string }

// dir is the folder of a group given by its path from the hierarchy's root.
func (m v1Mount) dir(group string) string {
	if rel, err := filepath.Rel(m.root, group); err == nil && filepath.IsLocal(rel) {
		return filepath.Join(m.point, rel)
	}
	return filepath.Join(m.point, group)
}

// v1Mounts maps the controllers of a hierarchy, written as in
// /proc/PID/cgroup, to its mount.
func v1Mounts() (map[string]v1Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	mounts := make(map[string]v1Mount)
	for line := range strings.SplitSeq(string(data), "\n") {
		h, ok := parseMount(line)
		if !ok || h.V2 {
			continue
		}
		before, after, _ := strings.Cut(line, " - ")
		mounts[controllers(strings.Fields(after)[2])] = v1Mount{point: h.Mount, root: strings.Fields(before)[3]}
	}
	return mounts, nil
}

// controllers takes what names a hierarchy out of its mount's super options.
func controllers(options string) string {
	var names []string
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "none":
			continue
		}
		if strings.HasPrefix(option, "release_agent=") {
			continue
		}
		names = append(names, option)
	}
	return strings.Join(names, ",")
}
