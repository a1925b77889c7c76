package server

import (
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/cgroups"
)

// groupFiles are the files of one cgroup, each of which is read once.
type groupFiles struct {
	group   *cgroups.Group
	below   string
	unified bool
	read    map[string]map[string]uint64 // by the file and the key
}

// filesOf returns the files of a group, or of one below it.
func filesOf(group *cgroups.Group, below string) *groupFiles {
	return &groupFiles{group: group, below: below, unified: isUnified(group), read: make(map[string]map[string]uint64)}
}

// number returns a metric's number; false if no file of this machine has it.
func (f *groupFiles) number(m metric) (uint64, bool) {
	c := m.v1
	if f.unified {
		c = m.v2
	}
	n, ok := f.numbers(c.file)[c.key]
	return n / max(1, c.unit), ok
}

// named is number for the metric of that name.
func (f *groupFiles) named(name string) (uint64, bool) { return f.number(metricOf(name)) }

func metricOf(name string) metric {
	return metrics[slices.IndexFunc(metrics, func(m metric) bool { return m.name == name })]
}

// memoryStat returns a number of memory.stat, of the group and those below it.
func (f *groupFiles) memoryStat(key string) (uint64, bool) {
	if !f.unified {
		key = "total_" + key
	}
	n, ok := f.numbers("memory.stat")[key]
	return n, ok
}

// numbers returns the numbers of a file by their keys.
func (f *groupFiles) numbers(file string) map[string]uint64 {
	if file == "" {
		return nil
	}
	if _, ok := f.read[file]; !ok {
		text, _ := readSetting(f.group, f.below, file) // a file that is not there has no numbers
		f.read[file] = parseNumbers(text)
	}
	return f.read[file]
}

// parseNumbers reads the formats of cgroups' files: "1", "key 1", "8:0 Read 1", "8:0 rbytes=1 wbytes=2" (two numbers).
// The number of a limit that is "max" is 0.
func parseNumbers(text string) map[string]uint64 {
	all := make(map[string]uint64)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		for _, field := range fields[1:] {
			if key, value, ok := strings.Cut(field, "="); ok {
				if n, err := strconv.ParseUint(value, 10, 64); err == nil {
					all[fields[0]+" "+key] = n
				}
			}
		}
		last := fields[len(fields)-1]
		if n, err := strconv.ParseUint(last, 10, 64); err == nil || last == "max" {
			all[strings.Join(fields[:len(fields)-1], " ")] = n
		}
	}
	return all
}
