package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// self is the writer itself (cgroups(7)). A thread that moves itself does not take the kernel's
// cgroup_threadgroup_rwsem (cgroup_procs_write_start in kernel/cgroup/cgroup.c, Linux 5.4); any other move does, and
// waits for an RCU grace period, 5 to 10 ms, unless the lock was held just before.
var self = []byte("0") //nolint:gochecknoglobals // a constant

// OpenMembers opens the files by which a thread moves itself into the group with MoveIn, a file for each hierarchy. The
// caller closes them.
func (g *Group) OpenMembers() (all []*os.File, err error) {
	for _, h := range g.Hierarchies {
		name := "tasks"
		if h.V2 {
			name = "cgroup.procs" // of a process, as a thread cannot move alone there
		}
		file, err := os.OpenFile(filepath.Join(g.Dir(h), name), os.O_WRONLY, 0)
		if err != nil {
			for _, opened := range all {
				_ = opened.Close()
			}
			return nil, fmt.Errorf("open cgroup: %w", err)
		}
		all = append(all, file)
	}
	return all, nil
}

// MoveIn moves the calling thread, which the caller has locked, into a group by the files of OpenMembers, and in the v2
// hierarchy its process.
func MoveIn(members []*os.File) error {
	if err := move(members); err != nil {
		return fmt.Errorf("enter cgroup: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// Entrance is the open files by which a thread starts a process in a group, from any mount namespace.
type Entrance struct {
	group, home []*os.File // the thread lists of the v1 groups, and of the thread's own groups
	v2          *os.File   // the group's folder in the v2 hierarchy; nil without one
}

// OpenEntrance opens the entrance for the calling thread, which the caller has locked. After an error it is nil,
// which may be closed.
func (g *Group) OpenEntrance() (*Entrance, error) {
	e := &Entrance{}
	if err := e.open(g); err != nil {
		e.Close()
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	return e, nil
}

func (e *Entrance) open(g *Group) error {
	paths, err := cgroups.ParseCgroupFile("/proc/thread-self/cgroup")
	if err != nil {
		return err
	}
	for _, h := range g.Hierarchies {
		if h.V2 {
			e.v2, err = os.OpenFile(g.Dir(h), unix.O_PATH|unix.O_DIRECTORY, 0)
		} else if err = openTasks(&e.group, g.Dir(h)); err == nil {
			if home, ok := h.dirOf(paths); ok {
				err = openTasks(&e.home, home)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openTasks adds the thread list of a v1 group to lists.
func openTasks(lists *[]*os.File, dir string) error {
	list, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
	if err == nil {
		*lists = append(*lists, list)
	}
	return err
}

// Close closes the files.
func (e *Entrance) Close() {
	if e == nil {
		return
	}
	for _, file := range append(append(e.group, e.home...), e.v2) {
		file.Close()
	}
}

// Fork calls start with the calling thread, for which the entrance was opened, in the group's v1 hierarchies, so that
// a child that start forks starts there. A thread cannot move alone in the v2 hierarchy: start gets the group's
// folder in it, nil without one, for clone3(2). If the thread cannot be moved back, Fork
// kills the child: the thread would be frozen and killed with the group.
func (e *Entrance) Fork(start func(v2 *os.File) (*os.Process, error)) (*os.Process, error) {
	if err := move(e.group); err != nil {
		return nil, errors.Join(fmt.Errorf("enter cgroup: %w", err), move(e.home))
	}
	process, err := start(e.v2)
	if moveErr := move(e.home); moveErr != nil {
		if process != nil {
			_ = process.Kill()
			_, _ = process.Wait()
		}
		return nil, errors.Join(err, fmt.Errorf("leave cgroup: %w", moveErr))
	}
	return process, err
}

// move moves the calling thread into the groups of those thread lists. It attempts all.
func move(lists []*os.File) error {
	var errs []error
	for _, list := range lists {
		_, err := list.Write(self)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), self, 0)
}

// dirOf returns the folder of a hierarchy's cgroup among paths, which maps controllers, and "" for the
// v2 hierarchy, to the cgroups' paths. A path begins at the root of the hierarchy; the mount may begin below it.
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
