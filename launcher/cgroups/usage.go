package cgroups

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what the processes of a group use. A number that this machine does not count is
// Unknown.
type Usage struct {
	CPU           time.Duration // since the group was made
	Memory        int64         // bytes, without the file cache that is not in use
	MemoryLimit   int64         // bytes; Unknown for none
	Read, Written int64         // bytes of block devices
	PIDs          int64         // processes and threads
}

// Unknown is a number of Usage that this machine does not count.
const Unknown = -1

// Usage returns what the processes of the group below this one use; below is its path from here.
// ok is false if there is no such group.
func (g *Group) Usage(below string) (u Usage, ok bool) {
	u = Usage{CPU: Unknown, Memory: Unknown, MemoryLimit: Unknown, Read: Unknown, Written: Unknown, PIDs: Unknown}
	for _, h := range g.Hierarchies {
		dir := filepath.Join(g.Dir(h), below)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		ok = true
		if h.V2 {
			u.readV2(dir)
		} else {
			u.readV1(dir)
		}
	}
	return u, ok
}

// readV1 reads the files of the controllers that the hierarchy has.
func (u *Usage) readV1(dir string) {
	if ns := number(dir, "cpuacct.usage"); ns != Unknown {
		u.CPU = time.Duration(ns)
	}
	if used := number(dir, "memory.usage_in_bytes"); used != Unknown {
		u.Memory = max(0, used-keyed(dir, "memory.stat", "total_inactive_file"))
		if limit := number(dir, "memory.limit_in_bytes"); limit < 1<<62 { // the kernel's "none" is close to the maximum
			u.MemoryLimit = limit
		}
	}
	if pids := number(dir, "pids.current"); pids != Unknown {
		u.PIDs = pids
	}
	u.readIO(dir, "blkio.throttle.io_service_bytes_recursive", func(fields []string) {
		if len(fields) == 3 && fields[1] == "Read" {
			u.Read += parse(fields[2])
		}
		if len(fields) == 3 && fields[1] == "Write" {
			u.Written += parse(fields[2])
		}
	})
}

// readV2 reads the files of the unified hierarchy, which has only the controllers that v1 does not.
func (u *Usage) readV2(dir string) {
	if _, err := os.Stat(filepath.Join(dir, "memory.current")); err == nil || u.CPU == Unknown {
		if us := keyed(dir, "cpu.stat", "usage_usec"); us > 0 {
			u.CPU = time.Duration(us) * time.Microsecond
		}
	}
	if used := number(dir, "memory.current"); used != Unknown {
		u.Memory = max(0, used-keyed(dir, "memory.stat", "inactive_file"))
		u.MemoryLimit = number(dir, "memory.max") // "max" is not a number
	}
	if pids := number(dir, "pids.current"); pids != Unknown {
		u.PIDs = pids
	}
	u.readIO(dir, "io.stat", func(fields []string) {
		for _, field := range fields[min(1, len(fields)):] {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "rbytes":
				u.Read += parse(value)
			case "wbytes":
				u.Written += parse(value)
			}
		}
	})
}

// readIO calls take with the fields of each line of a file, if the group has it; the sums begin at 0.
func (u *Usage) readIO(dir, name string, take func(fields []string)) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return
	}
	u.Read, u.Written = 0, 0
	for line := range strings.Lines(string(data)) {
		take(strings.Fields(line))
	}
}

// number reads a file that has one number, or returns Unknown.
func number(dir, name string) int64 {
	data, _ := os.ReadFile(filepath.Join(dir, name))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return Unknown
	}
	return n
}

// keyed returns the number that a file has for a key, or 0.
func keyed(dir, name, key string) int64 {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if found, value, _ := strings.Cut(lines.Text(), " "); found == key {
			return parse(value)
		}
	}
	return 0
}

func parse(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // the kernel writes numbers
	return n
}

// OOMKilled reports whether the kernel has killed a process of the group, or of the group below with that name, because
// memory was used up. Other groups below do not count.
func (g *Group) OOMKilled(below string) bool {
	for _, h := range g.Hierarchies {
		for _, file := range []string{"memory.oom_control", "memory.events.local"} { // of version 1 and 2
			for _, dir := range []string{g.Dir(h), filepath.Join(g.Dir(h), below)} {
				if keyed(dir, file, "oom_kill") > 0 {
					return true
				}
			}
		}
	}
	return false
}
