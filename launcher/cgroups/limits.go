package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"kurma.io/stager/internal/cgroupfile"
)

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
	own, err := cgroupfile.Limit(g.Dir(h), file)
	if err != nil {
		return err
	}
	lowest, err := cgroupfile.LowestLimit(g.Dir(h), file)
	if err != nil || lowest == own {
		return err
	}
	return os.WriteFile(filepath.Join(g.Dir(h), file), []byte(strconv.FormatInt(lowest, 10)), 0)
}

// MemoryLimit returns the lowest limit of memory of the group and the groups around it, in bytes. Without one it is
// more than any machine has.
func (g *Group) MemoryLimit() (int64, error) {
	lowest := int64(cgroupfile.NoLimit)
	for _, h := range g.Hierarchies {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			limit, err := cgroupfile.LowestLimit(g.Dir(h), file)
			if err != nil {
				return 0, fmt.Errorf("find limit of memory: %w", err)
			}
			lowest = min(lowest, limit)
		}
	}
	return lowest, nil
}
