// Package cgroups gives each pod a control group of its own in every
// hierarchy of the machine: cgroup v1 with one mount per controller, v2
// alone, or both side by side.
package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MountRoot is where the hierarchies of a machine are mounted, the unified one
// itself or one folder for each.
const MountRoot = "/sys/fs/cgroup"

// Hierarchy is one mounted cgroup hierarchy.
type Hierarchy struct {
	// Mount is the mount point, MountRoot itself or a folder in it.
	Mount string
	// V2 tells the unified hierarchy from a v1 one.
	V2 bool
	// cpuset hierarchies of v1 need processors and memory nodes to be set
	// before a process may enter.
	cpuset bool
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

// mounted reads the hierarchies below MountRoot from /proc/self/mountinfo,
// whose form is in proc_pid_mountinfo(5).
func mounted() ([]Hierarchy, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Hierarchy
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if h, ok := parseMount(lines.Text()); ok {
			all = append(all, h)
		}
	}
	if len(all) == 0 && lines.Err() == nil {
		return nil, fmt.Errorf("none is mounted in %s", MountRoot)
	}
	return all, lines.Err()
}

func parseMount(line string) (Hierarchy, bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, source := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(source) < 3 {
		return Hierarchy{}, false
	}
	point := fields[4]
	if point != MountRoot && filepath.Dir(point) != MountRoot {
		return Hierarchy{}, false
	}
	options := "," + source[2] + ","
	h := Hierarchy{Mount: point, V2: source[0] == "cgroup2", cpuset: strings.Contains(options, ",cpuset,")}
	return h, h.V2 || source[0] == "cgroup"
}

// Dir is the group's folder in a hierarchy.
func (g *Group) Dir(h Hierarchy) string { return filepath.Join(h.Mount, g.Path) }

// Make makes the group in every hierarchy, its parents included. The
// controllers that a v2 hierarchy has are handed down to it.
func (g *Group) Make() error {
	for _, h := range g.Hierarchies {
		if err := g.makeIn(h); err != nil {
			return fmt.Errorf("make cgroup %s: %w", g.Dir(h), err)
		}
	}
	return nil
}

// makeIn goes down from the mount point. A parent may be removed by another
// pod's end between two steps; then it starts again.
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
			if err := handDown(dir); err != nil {
				return err
			}
		}
		parent := dir
		dir = filepath.Join(dir, name)
		switch err := os.Mkdir(dir, 0o755); {
		case err == nil:
			mark(dir)
		case !errors.Is(err, fs.ErrExist):
			return err
		}
		if h.cpuset {
			if err := inheritCPUs(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// madeHere is the extended attribute of groups that were made here. It tells
// them from groups of the administrator's, for whichever launcher removes the last pod.
const madeHere = "trusted.kurma.launcher"

// mark notes that a group was made here. Where that cannot be noted it is an
// administrator's to remove.
func mark(dir string) { _ = unix.Setxattr(dir, madeHere, []byte("1"), 0) }

func isMarked(dir string) bool {
	_, err := unix.Getxattr(dir, madeHere, nil)
	return err == nil
}

// handDown enables each controller of a v2 group for its children. One that
// cannot be, for instance a cpu controller with realtime processes about, is
// left out: the pod does without it.
func handDown(dir string) error {
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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

// V2Dir opens the group's folder in the v2 hierarchy, for CLONE_INTO_CGROUP;
// nil where there is no v2 hierarchy. The caller closes it.
func (g *Group) V2Dir() (*os.File, error) {
	for _, h := range g.Hierarchies {
		if h.V2 {
			return os.OpenFile(g.Dir(h), unix.O_PATH|unix.O_DIRECTORY, 0)
		}
	}
	return nil, nil
}
