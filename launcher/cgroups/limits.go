package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// noLimit is more than any limit: version 1 has a number near the highest for no limit of memory.
const noLimit = 1 << 62

// LimitAsAround gives the group, which has been made, the lowest limits of memory and tasks of the groups around it, if
// its own are not lower. A stager sees its own group alone. It leaves room for itself below the limits that it sees,
// so that the kernel looks among the apps for a process to kill, and not at the supervisor.
func (g *Group) LimitAsAround() error {
	for _, h := range g.Hierarchies {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes", "pids.max"} { // of version 2, of 1, of both
			if err := g.limitAsAround(h, file); err != nil {
				return fmt.Errorf("limit cgroup as the cgroups around it: %w", err)
			}
		}
	}
	return nil
}

func (g *Group) limitAsAround(h Hierarchy, file string) error {
	own, err := limitIn(g.Dir(h), file)
	if err != nil {
		return err
	}
	lowest, err := g.lowestLimit(h, file)
	if err != nil || lowest == own {
		return err
	}
	return os.WriteFile(filepath.Join(g.Dir(h), file), []byte(strconv.FormatInt(lowest, 10)), 0)
}

// lowestLimit returns the lowest limit of the group and the groups around it, noLimit for none.
func (g *Group) lowestLimit(h Hierarchy, file string) (int64, error) {
	lowest, err := limitIn(g.Dir(h), file)
	for dir := g.Dir(h); dir != h.Mount && err == nil; {
		dir = filepath.Dir(dir)
		var limit int64
		limit, err = limitIn(dir, file)
		lowest = min(lowest, limit)
	}
	return lowest, err
}

// MemoryLimit returns the lowest limit of memory of the group and the groups around it, in bytes. Without one it is
// more than any machine has.
func (g *Group) MemoryLimit() (int64, error) {
	lowest := int64(noLimit)
	for _, h := range g.Hierarchies {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			limit, err := g.lowestLimit(h, file)
			if err != nil {
				return 0, fmt.Errorf("find limit of memory: %w", err)
			}
			lowest = min(lowest, limit)
		}
	}
	return lowest, nil
}

// limitIn returns the limit in a file of a group's folder, noLimit for none. A limit that cannot be read is an error.
func limitIn(dir, file string) (int64, error) {
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noLimit, nil // the root of the hierarchy, or another controller's
	}
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return noLimit, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return min(n, noLimit), nil
}
