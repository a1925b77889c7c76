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
	lowest, err := g.lowestAround(h, file)
	if err != nil || lowest >= own {
		return err
	}
	return os.WriteFile(filepath.Join(g.Dir(h), file), []byte(strconv.FormatInt(lowest, 10)), 0)
}

// lowestAround returns the lowest limit of the groups around the group, noLimit for none.
func (g *Group) lowestAround(h Hierarchy, file string) (int64, error) {
	lowest := int64(noLimit)
	for dir := g.Dir(h); dir != h.Mount; {
		dir = filepath.Dir(dir)
		limit, err := limitIn(dir, file)
		if err != nil {
			return 0, err
		}
		lowest = min(lowest, limit)
	}
	return lowest, nil
}

// LeaveMemory limits the memory of the group below that is named inner to less than the lowest limit of the group, the
// groups around it and the group below that is named limited: what is left is for the processes beside inner. Without a
// limit inner has none.
func (g *Group) LeaveMemory(inner, limited string, room int64) error {
	for _, h := range g.Hierarchies {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			if !exists(filepath.Join(g.Dir(h), inner, file)) {
				continue
			}
			within := Group{Path: filepath.Join(g.Path, inner)}
			lowest, err := within.lowestAround(h, file)
			if err != nil {
				return fmt.Errorf("leave memory beside cgroup %s: %w", within.Path, err)
			}
			own, err := limitIn(filepath.Join(g.Dir(h), limited), file)
			if err != nil {
				return fmt.Errorf("leave memory beside cgroup %s: %w", within.Path, err)
			}
			text := map[bool]string{true: "max", false: "-1"}[h.V2]
			if lowest = min(lowest, own); lowest < noLimit {
				text = strconv.FormatInt(max(lowest-room, lowest/4*3), 10)
			}
			if err := WriteExisting(filepath.Join(within.Dir(h), file), text); err != nil {
				return fmt.Errorf("leave memory beside cgroup %s: %w", within.Path, err)
			}
		}
	}
	return nil
}

// OOMKilled reports whether the kernel has killed a process of the group, or of the group below with that name, because
// memory was used up. Other groups below do not count.
func (g *Group) OOMKilled(below string) bool {
	for _, h := range g.Hierarchies {
		for _, file := range []string{"memory.oom_control", "memory.events.local"} { // of version 1 and 2
			for _, dir := range []string{g.Dir(h), filepath.Join(g.Dir(h), below)} {
				text, _ := os.ReadFile(filepath.Join(dir, file)) // which another controller has not
				for line := range strings.Lines(string(text)) {
					if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" && fields[1] != "0" {
						return true
					}
				}
			}
		}
	}
	return false
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
