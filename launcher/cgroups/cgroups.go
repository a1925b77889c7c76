// Package cgroups gives each pod a control group of its own in every
// hierarchy of the machine: cgroup v1 with one mount per controller, v2
// alone, or both side by side.
//
// moby/sys/mountinfo and opencontainers/cgroups read mounts, memberships and
// processes. The managers of opencontainers/cgroups cannot make the groups: they make a
// group for one container by the controllers that it limits, so they leave out named
// hierarchies and, beside v1, the v2 hierarchy, and they do not say which parents they made.
package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// MountRoot is where the hierarchies of a machine are mounted, the unified one
// itself or one folder for each.
const MountRoot = "/sys/fs/cgroup"

// Hierarchy is one mounted cgroup hierarchy.
type Hierarchy struct {
	// Mount is the mount point, MountRoot itself or a folder in it.
	Mount string
	// V2 is set for the unified hierarchy.
	V2 bool
	// root is the group of the hierarchy that is mounted there, "/" for all of it.
	root string
	// options are the file system's mount options. A v1 hierarchy has the names of its
	// controllers, or name=NAME, among them.
	options string
}

// cpuset reports whether processors and memory nodes must be set before a process
// may enter a group, as in a v1 hierarchy of the cpuset controller.
func (h Hierarchy) cpuset() bool {
	return !h.V2 && slices.Contains(strings.Split(h.options, ","), "cpuset")
}

// Group is one control group, the same path in every hierarchy.
type Group struct {
	// Path is the path below each hierarchy's mount point, e.g. kurma/UUID.
	Path        string
	Hierarchies []Hierarchy
}

// Open describes a group; nothing is made yet.
func Open(path string) (*Group, error) {
	if !filepath.IsLocal(path) {
		return nil, fmt.Errorf("cgroup %q is not a path below the hierarchy's root", path)
	}
	hierarchies, err := mounted()
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	return &Group{Path: path, Hierarchies: hierarchies}, nil
}

// mounted returns the hierarchies below MountRoot.
func mounted() ([]Hierarchy, error) {
	mounts, err := mountinfo.GetMounts(besideMountRoot)
	if err != nil {
		return nil, err
	}
	if len(mounts) == 0 {
		return nil, fmt.Errorf("no cgroup hierarchy is mounted in %s", MountRoot)
	}
	return hierarchies(mounts), nil
}

// besideMountRoot skips mounts that are not a hierarchy at MountRoot or in it.
func besideMountRoot(m *mountinfo.Info) (skip, stop bool) {
	inPlace := m.Mountpoint == MountRoot || filepath.Dir(m.Mountpoint) == MountRoot
	return !inPlace || m.FSType != "cgroup" && m.FSType != "cgroup2", false
}

func hierarchies(mounts []*mountinfo.Info) []Hierarchy {
	var all []Hierarchy
	for _, m := range mounts {
		all = append(all, Hierarchy{Mount: m.Mountpoint, V2: m.FSType == "cgroup2", root: m.Root, options: m.VFSOptions})
	}
	return all
}

// Dir is the group's folder in a hierarchy.
func (g *Group) Dir(h Hierarchy) string { return filepath.Join(h.Mount, g.Path) }

// Make makes the group in every hierarchy, its parents included. In a v2 hierarchy it
// enables all controllers for the group. Only the group's own Remove removes it, and not that of a group in it.
func (g *Group) Make() error {
	for _, h := range g.Hierarchies {
		if err := g.makeIn(h); err != nil {
			return fmt.Errorf("make cgroup %s: %w", g.Dir(h), err)
		}
	}
	return nil
}

// makeIn makes the group and its parents from the mount point down. If the end of another
// pod removes a parent meanwhile, it starts again.
func (g *Group) makeIn(h Hierarchy) error {
	var err error
	for range 100 {
		if err = g.descend(h); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func (g *Group) descend(h Hierarchy) error {
	dir := h.Mount
	for name := range strings.SplitSeq(g.Path, "/") {
		if h.V2 {
			if err := enableControllers(dir); err != nil {
				return err
			}
		}
		parent := dir
		dir = filepath.Join(dir, name)
		switch err := os.Mkdir(dir, 0o755); {
		case err == nil && dir != g.Dir(h): // the group itself goes by its own Remove
			mark(dir)
		case err != nil && !errors.Is(err, fs.ErrExist):
			return err
		}
		if h.cpuset() {
			if err := inheritCPUs(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// madeHere is the extended attribute of groups that a launcher has made as parents. The launcher that removes the last
// pod removes them, and not the groups of the administrator or of a sandbox, which pods are made in.
const madeHere = "trusted.kurma.launcher"

// mark marks a group as made by a launcher. If that fails the administrator must remove it.
func mark(dir string) { _ = unix.Setxattr(dir, madeHere, []byte("1"), 0) }

// Missing returns the folders of the group's parents that do not exist. A caller that keeps them before
// Make, for Claim, can be killed in the middle of Make.
func (g *Group) Missing() []string {
	var missing []string
	for _, h := range g.Hierarchies {
		for parent := filepath.Dir(g.Path); parent != "."; parent = filepath.Dir(parent) {
			if dir := filepath.Join(h.Mount, parent); !exists(dir) {
				missing = append(missing, dir)
			}
		}
	}
	return missing
}

// Claim marks the parents that Missing has returned before a launcher was killed, as Make would have: the launcher
// that removes the last pod removes them. Folders that do not exist, or that are none of the group's parents, are
// ignored.
func (g *Group) Claim(missing []string) {
	for _, h := range g.Hierarchies {
		for parent := filepath.Dir(g.Path); parent != "."; parent = filepath.Dir(parent) {
			if dir := filepath.Join(h.Mount, parent); slices.Contains(missing, dir) {
				mark(dir)
			}
		}
	}
}

func isMarked(dir string) bool {
	_, err := unix.Getxattr(dir, madeHere, nil)
	return err == nil
}

// enableControllers enables each controller of a v2 group for its children. The pod lacks
// a controller that cannot be enabled, such as cpu while there are realtime processes.
func enableControllers(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(data)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0)
		if errors.Is(err, fs.ErrNotExist) && !exists(dir) {
			return err
		}
	}
	return nil
}

// exists tells whether there is a file. One that cannot be looked at counts as there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func inheritCPUs(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue // the file has no "cpuset." prefix with the noprefix mount option
		}
		inherited, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), inherited, 0); err != nil {
			return err
		}
	}
	return nil
}
