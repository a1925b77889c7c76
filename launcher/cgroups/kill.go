package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// patience is how long killed processes may take to disappear. The kernel ends them at
// once, except processes in uninterruptible sleep.
const patience = 10 * time.Second

// Kill ends every process of the group and of the groups below it: SIGKILL, freeze, SIGKILL
// to processes that were forked meanwhile, thaw. It also thaws groups below that an app has
// frozen, as a privileged one can: in a v1 hierarchy a frozen process does not end. A group
// that is empty or does not exist is not an error. The calling process is spared: a thread of it is still in the group
// if Fork could not move the thread back.
func (g *Group) Kill() error {
	if err := g.signalAll(); err != nil {
		return fmt.Errorf("kill cgroup %s: %w", g.Path, err)
	}
	g.freeze()
	defer g.thaw()
	if err := g.signalAll(); err != nil {
		return fmt.Errorf("kill cgroup %s: %w", g.Path, err)
	}
	return nil
}

func (g *Group) signalAll() error {
	pids, err := g.PIDs()
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		if e := unix.Kill(pid, unix.SIGKILL); e != nil && e != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("process %d: %w", pid, e))
		}
	}
	return err
}

// freeze stops the whole group, where it exists. The freezer of opencontainers/cgroups
// waits until a group is frozen, and thaws that group only and not those below it.
func (g *Group) freeze() {
	for _, h := range g.Hierarchies {
		setFrozen(g.Dir(h), "FROZEN", "1")
	}
}

// thaw lets the group and those below it run again.
func (g *Group) thaw() {
	for _, h := range g.Hierarchies {
		_ = g.walk(h, func(dir string) error { setFrozen(dir, "THAWED", "0"); return nil })
	}
}

// setFrozen writes to the freezer of either version. A group has only one of the two files, or
// none: in most v1 hierarchies, and once it is removed.
func setFrozen(dir, v1, v2 string) {
	_ = WriteExisting(filepath.Join(dir, "freezer.state"), v1)
	_ = WriteExisting(filepath.Join(dir, "cgroup.freeze"), v2)
}

// WriteExisting writes text to a file of a group. A file that does not exist is fs.ErrNotExist, and is not made.
func WriteExisting(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// PIDs lists the processes of the group and below, in all hierarchies,
// sorted, each once. For a threaded v2 group it lists the threads.
func (g *Group) PIDs() ([]int, error) { return g.PIDsBelow("") }

// PIDsBelow lists the processes as PIDs does, but of the group below this one; below is its path from here. A group
// that does not exist has none.
func (g *Group) PIDsBelow(below string) ([]int, error) {
	var pids []int
	for _, h := range g.Hierarchies {
		found, err := cgroups.GetAllPids(filepath.Join(g.Dir(h), below))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return nil, err
		}
		pids = append(pids, found...)
	}
	// The kernel shows 0 for a process of another PID namespace, which kill(2) takes
	// for the caller's process group.
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid <= 0 })
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// walk visits the group's folders in a hierarchy, parents first. It skips folders that are
// removed meanwhile.
func (g *Group) walk(h Hierarchy, visit func(dir string) error) error {
	return filepath.WalkDir(g.Dir(h), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = visit(path)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		return err
	})
}

// Remove removes the group in every hierarchy, children first, and those of its parents
// that Make has made and that are empty then. It waits for killed processes to
// disappear. A group that does not exist is not an error.
func (g *Group) Remove() error {
	deadline := time.Now().Add(patience)
	for {
		err := g.removeOnce()
		if err == nil {
			g.removeParents()
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", g.Path, err)
		}
		time.Sleep(2 * time.Millisecond) // rmdir(2) of a cgroup has no way to wait
	}
}

// removeOnce tries every group. cgroups.RemovePath is not used: it waits for
// processes by itself, for a second in each hierarchy and ever longer between two tries.
func (g *Group) removeOnce() error {
	var errs []error
	for _, h := range g.Hierarchies {
		var dirs []string
		err := g.walk(h, func(dir string) error { dirs = append(dirs, dir); return nil })
		errs = append(errs, err)
		for _, dir := range slices.Backward(dirs) {
			if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
				errs = append(errs, fmt.Errorf("%s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeParents removes, upwards, the groups that Make has made and no other pod uses:
// rmdir(2) of a group that has groups or processes fails with EBUSY, which ends the way up.
func (g *Group) removeParents() {
	for _, h := range g.Hierarchies {
		for parent := filepath.Dir(g.Path); parent != "."; parent = filepath.Dir(parent) {
			dir := filepath.Join(h.Mount, parent)
			if !isMarked(dir) || unix.Rmdir(dir) != nil {
				break
			}
		}
	}
}
