package metrics

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/cgroups"
)

// GroupFiles are the files of one cgroup, each of which is read once.
type GroupFiles struct {
	group *cgroups.Group
	below string
	read  map[groupFile]map[string]uint64 // the numbers by their keys
}

// groupFile is a file in the hierarchies of a version. A machine can have both, and files of one name in both.
type groupFile struct {
	name string
	v2   bool
}

// FilesOf returns the files of a group, or of one below it.
func FilesOf(group *cgroups.Group, below string) *GroupFiles {
	return &GroupFiles{group: group, below: below, read: make(map[groupFile]map[string]uint64)}
}

// number returns a metric's number; false if no file of this machine has it.
func (f *GroupFiles) number(m Metric) (float64, bool) {
	if n, ok := f.numbers(m.v1.file, false)[m.v1.key]; ok {
		return float64(n) / float64(max(1, m.v1.unit)), true
	}
	n, ok := f.numbers(m.v2.file, true)[m.v2.key]
	return float64(n) / float64(max(1, m.v2.unit)), ok
}

// Bytes returns the metric of that name, which counts bytes; false if no file of this machine has it.
func (f *GroupFiles) Bytes(name string) (uint64, bool) {
	n, ok := f.number(Of(name))
	return uint64(n), ok
}

// MemoryStat returns a number of memory.stat, of the group and those below it.
func (f *GroupFiles) MemoryStat(key string) (uint64, bool) {
	n, ok := f.number(Metric{v1: counter{"memory.stat", "total_" + key, 0}, v2: counter{"memory.stat", key, 0}})
	return uint64(n), ok
}

// Quota returns the CPU quota and its period in microseconds; 0 for no quota.
func (f *GroupFiles) Quota() (quota, period uint64) {
	if quota, ok := f.numbers("cpu.cfs_quota_us", false)[""]; ok { // -1 is none
		return quota, f.numbers("cpu.cfs_period_us", false)[""]
	}
	for text, period := range f.numbers("cpu.max", true) { // "QUOTA PERIOD", or "max PERIOD"
		if quota, err := strconv.ParseUint(text, 10, 64); err == nil {
			return quota, period
		}
	}
	return 0, 0
}

// numbers returns the numbers of a file by their keys; none if there is no such file.
func (f *GroupFiles) numbers(name string, v2 bool) map[string]uint64 {
	file := groupFile{name, v2}
	if _, ok := f.read[file]; !ok && name != "" {
		f.read[file] = nil
		for _, h := range f.group.Hierarchies {
			text, err := os.ReadFile(filepath.Join(f.group.Dir(h), f.below, name))
			if h.V2 == v2 && err == nil {
				f.read[file] = parseNumbers(string(text))
			}
		}
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
