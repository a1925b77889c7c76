package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cgroupRoot is where version 2 of the cgroups is mounted.
const cgroupRoot = "/sys/fs/cgroup"

// A cost is what something takes: time, and the CPU time of all processes of a cgroup.
type cost struct{ wall, cpu time.Duration }

// measure returns what f costs, in a cgroup below cgroupRoot.
func measure(cgroup string, f func() error) (cost, error) {
	before, err := cpuOf(cgroup)
	if err != nil {
		return cost{}, err
	}
	begin := time.Now()
	err = f()
	took := time.Since(begin)
	if err != nil {
		return cost{}, err
	}
	after, err := cpuOf(cgroup)
	return cost{wall: took, cpu: after - before}, err
}

// cpuOf is the CPU time of a cgroup and of all that have been below it (cpu.stat).
func cpuOf(cgroup string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(cgroupRoot, cgroup, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	i := slices.Index(fields, "usage_usec")
	if i < 0 {
		return 0, fmt.Errorf("read cpu.stat of cgroup %s: it lacks usage_usec", cgroup)
	}
	microseconds, err := strconv.ParseInt(fields[i+1], 10, 64)
	return time.Duration(microseconds) * time.Microsecond, err
}

// walls and cpus are the parts of costs.
func walls(costs []cost) (found []time.Duration) {
	for _, c := range costs {
		found = append(found, c.wall)
	}
	return found
}

func cpus(costs []cost) (found []time.Duration) {
	for _, c := range costs {
		found = append(found, c.cpu)
	}
	return found
}
