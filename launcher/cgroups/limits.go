package cgroups

import (
	"fmt"
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
			own := limitIn(g.Dir(h), file)
			lowest := own
			for dir := g.Dir(h); dir != h.Mount; {
				dir = filepath.Dir(dir)
				lowest = min(lowest, limitIn(dir, file))
			}
			if lowest == own {
				continue
			}
			path := filepath.Join(g.Dir(h), file)
			if err := os.WriteFile(path, []byte(strconv.FormatInt(lowest, 10)), 0); err != nil {
				return fmt.Errorf("limit cgroup as the cgroups around it: %w", err)
			}
		}
	}
	return nil
}

// limitIn returns the limit in a file of a group's folder, noLimit for none.
func limitIn(dir, file string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return noLimit // the root of the hierarchy, or another controller's
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // "max"
		return noLimit
	}
	return min(n, noLimit)
}
