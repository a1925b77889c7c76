package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// EnterThread moves the calling thread into the group in the v1 hierarchies, so that a
// child that it forks starts there, and returns a function that moves it back. The caller
// has locked the thread. A single thread cannot move in the v2 hierarchy: use V2Dir and
// clone3(2) for that.
//
// The thread must be moved back before the group is frozen or killed: it would be frozen or
// killed with it.
func (g *Group) EnterThread() (leave func() error, err error) {
	tid := []byte(strconv.Itoa(unix.Gettid()))
	// Opened before: the thread may be in another mount namespace when it leaves.
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

// openTasks opens the thread lists of the v1 cgroups that the calling thread is in.
func openTasks() ([]*os.File, error) {
	dirs, err := threadCgroups()
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, dir := range dirs {
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

// EnterProcess moves the calling process into the group, which Make has made, in every hierarchy. It
// returns a function that moves the process back, or, where its earlier group is gone, to the
// root of the hierarchy.
func (g *Group) EnterProcess() (leave func() error, err error) {
	paths, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find own cgroups: %w", err)
	}
	leave = func() error {
		var errs []error
		for _, h := range g.Hierarchies {
			if home, ok := h.dirOf(paths); !ok || moveProcess(home) != nil {
				errs = append(errs, moveProcess(h.Mount))
			}
		}
		return errors.Join(errs...)
	}
	for _, h := range g.Hierarchies {
		if err := moveProcess(g.Dir(h)); err != nil {
			return nil, errors.Join(fmt.Errorf("enter cgroup %s: %w", g.Dir(h), err), leave())
		}
	}
	return leave, nil
}

// moveProcess moves the calling process into a group of one hierarchy.
func moveProcess(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// threadCgroups lists the folders of the v1 cgroups that the calling thread is in.
func threadCgroups() ([]string, error) {
	paths, err := cgroups.ParseCgroupFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, err
	}
	all, err := mounted()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range all {
		if dir, ok := h.dirOf(paths); ok && !h.V2 {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// dirOf returns the folder of a hierarchy's cgroup among paths, which maps controllers, and "" for the
// v2 hierarchy, to the cgroups' paths. A path is one from the root of the hierarchy, which need not be what is mounted.
func (h Hierarchy) dirOf(paths map[string]string) (string, bool) {
	options := strings.Split(h.options, ",")
	if h.V2 {
		options = []string{""}
	}
	for _, option := range options {
		path, ok := paths[option]
		if !ok {
			continue
		}
		if rel, err := filepath.Rel(h.root, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
		return filepath.Join(h.Mount, path), true
	}
	return "", false
}
