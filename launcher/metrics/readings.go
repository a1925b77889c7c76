package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kurma.io/stager/launcher/cgroups"
)

// Readings are values of metrics which share the values of the common labels.
type Readings struct {
	Labels  Labels
	Samples []Sample
}

// Labels are the values of the labels that all metrics have, cAdvisor's: Prometheus' users join metrics by them.
type Labels struct {
	Container string
	ID        string // the path of the cgroup, with a slash before it
	Image     string
	Name      string // which the runtime knows the container or pod by
	Namespace string
	Pod       string
}

// Sample is a value of the metric of that name, and the values of the labels which the metric has beside the common
// ones.
type Sample struct {
	Name   string
	Value  float64
	Labels []string
}

// LabelValues returns the values of the labels of a sample, in the order of LabelNames.
func (r *Readings) LabelValues(s Sample) []string {
	l := r.Labels
	return slices.Concat([]string{l.Container, l.ID, l.Image, l.Name, l.Namespace, l.Pod}, s.Labels)
}

// Add adds a value of a metric, with the values of the labels that the metric has beside the common ones.
func (r *Readings) Add(name string, value float64, labels ...string) {
	r.Samples = append(r.Samples, Sample{name, value, labels})
}

// AddGroup adds what the processes of a cgroup, or of one below it, use: CPU, memory, block devices, threads, processes
// and their descriptors. Only a group with a CPU quota has the metrics of a quota.
func (r *Readings) AddGroup(group *cgroups.Group, below string, hasQuota bool) {
	files := FilesOf(group, below)
	for _, m := range table {
		if n, ok := files.number(m); ok && (hasQuota || !m.ofQuota()) {
			r.Add(m.Name, n, slices.Repeat([]string{"total"}, len(m.labels))...) // of all CPUs
		}
	}
	r.addMemory(files)
	r.addDevices(files)
	pids, _ := group.PIDsBelow(below) // what cannot be read is not counted
	r.addProcesses(pids)
}

// addMemory adds the metrics of memory that are no number of a file.
func (r *Readings) addMemory(files *GroupFiles) {
	if used, ok := files.Bytes("container_memory_usage_bytes"); ok {
		cache, _ := files.MemoryStat("inactive_file")
		r.Add("container_memory_working_set_bytes", float64(used-min(used, cache)))
	}
	for _, kind := range []string{"pgfault", "pgmajfault"} {
		for scope, key := range map[string]string{"container": kind, "hierarchy": "total_" + kind} {
			if n, ok := files.number(Metric{v1: counter{"memory.stat", key, 0}, v2: counter{"memory.stat", kind, 0}}); ok {
				r.Add("container_memory_failures_total", n, kind, scope)
			}
		}
	}
}

func (r *Readings) addDevices(files *GroupFiles) {
	for _, c := range deviceMetrics {
		numbers, want := files.numbers(c.v1, false), c.v1Key
		if len(numbers) == 0 {
			numbers, want = files.numbers("io.stat", true), c.v2Key
		}
		for key, n := range numbers {
			device, what, _ := strings.Cut(key, " ")
			major, minor, ok := strings.Cut(device, ":")
			if !ok || what != want {
				continue
			}
			r.Add(c.name, float64(n), DeviceName(device))
			if c.operation != "" {
				r.Add("container_blkio_device_usage_total", float64(n), DeviceName(device), major, minor, c.operation)
			}
		}
	}
}

// DeviceName returns the path of a block device, MAJOR:MINOR; a device that the kernel does not name is its numbers.
func DeviceName(numbers string) string {
	link, err := os.Readlink("/sys/dev/block/" + numbers)
	if err != nil {
		return numbers
	}
	return "/dev/" + filepath.Base(link)
}

// mostDescriptors is of how many descriptors a container has metrics: each takes microseconds, and an app may have many
// millions.
const mostDescriptors = 10_000

// addProcesses counts processes and their descriptors, if these are not too many.
func (r *Readings) addProcesses(pids []int) {
	r.Add("container_processes", float64(len(pids)))
	var descriptors, sockets int
	for _, pid := range pids {
		files := descriptorsOf(pid, mostDescriptors+1-descriptors)
		if descriptors += len(files); descriptors > mostDescriptors {
			return
		}
		for _, file := range files {
			if target, _ := os.Readlink(file); strings.HasPrefix(target, "socket:") {
				sockets++
			}
		}
	}
	r.Add("container_file_descriptors", float64(descriptors))
	r.Add("container_sockets", float64(sockets))
}

// descriptorsOf returns the files of a process's descriptors, at most that many; none of a process that has just ended.
func descriptorsOf(pid, most int) []string {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil
	}
	defer dir.Close()
	files, _ := dir.Readdirnames(most)
	for i, name := range files {
		files[i] = filepath.Join(dir.Name(), name)
	}
	return files
}
