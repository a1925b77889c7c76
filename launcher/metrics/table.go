// Package metrics has cAdvisor's metrics of apps and pods, by which Prometheus knows containers: their table, their
// values in cgroups and networks, and a server of Prometheus' text format.
package metrics

import (
	"slices"
	"strings"
)

// Kind is a metric's type, as Prometheus names it.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is one of cAdvisor's metrics, by which Prometheus knows containers.
type Metric struct {
	Name, Help string
	Kind       Kind
	labels     []string // beside the common ones
	v1, v2     counter  // where hierarchies of each version have it; none for a metric that is found otherwise
}

// Table returns all metrics, which the caller does not change.
func Table() []Metric { return table }

// Of returns the metric of that name; without a name and a kind, and in no file, if the table has none.
func Of(name string) Metric {
	for _, m := range table {
		if m.Name == name {
			return m
		}
	}
	return Metric{}
}

// LabelNames returns the names of a metric's labels: the common ones, and its own.
func LabelNames(m Metric) []string {
	return slices.Concat([]string{"container", "id", "image", "name", "namespace", "pod"}, m.labels)
}

// ofQuota reports whether a metric is that of the CPU quota, which most containers have not.
func (m Metric) ofQuota() bool { return strings.HasPrefix(m.Name, "container_cpu_cfs_") }

// counter is a number in a file of a cgroup.
type counter struct {
	file string
	key  string // the words before the number in its line; "" if the line is the number
	unit uint64 // how many of the number are one of the metric; 0 for one
}

// Units of time in cgroups' files: how many are a second.
const (
	nanosecond  = 1_000_000_000
	microsecond = 1_000_000
	tick        = 100 // USER_HZ
)

var table = []Metric{ //nolint:gochecknoglobals // a table that is only read
	{
		"container_cpu_usage_seconds_total", "CPU time.", Counter,
		[]string{"cpu"},
		counter{"cpuacct.usage", "", nanosecond},
		counter{"cpu.stat", "usage_usec", microsecond},
	},
	{
		"container_cpu_user_seconds_total", "CPU time in user mode.", Counter, nil,
		counter{"cpuacct.stat", "user", tick},
		counter{"cpu.stat", "user_usec", microsecond},
	},
	{
		"container_cpu_system_seconds_total", "CPU time in the kernel.", Counter, nil,
		counter{"cpuacct.stat", "system", tick},
		counter{"cpu.stat", "system_usec", microsecond},
	},
	{
		"container_cpu_cfs_periods_total", "Periods of the CPU quota.", Counter, nil,
		counter{"cpu.stat", "nr_periods", 0},
		counter{"cpu.stat", "nr_periods", 0},
	},
	{
		"container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota was used up.", Counter, nil,
		counter{"cpu.stat", "nr_throttled", 0},
		counter{"cpu.stat", "nr_throttled", 0},
	},
	{
		"container_cpu_cfs_throttled_seconds_total", "Time in which the CPU quota was used up.", Counter, nil,
		counter{"cpu.stat", "throttled_time", nanosecond},
		counter{"cpu.stat", "throttled_usec", microsecond},
	},
	{
		"container_memory_usage_bytes", "Memory with the file cache.", Gauge, nil,
		counter{"memory.usage_in_bytes", "", 0},
		counter{"memory.current", "", 0},
	},
	{
		"container_memory_max_usage_bytes", "The most memory that was used.", Gauge, nil,
		counter{"memory.max_usage_in_bytes", "", 0},
		counter{"memory.peak", "", 0},
	},
	{Name: "container_memory_working_set_bytes", Kind: Gauge, Help: "Memory without the file cache that is not in use."},
	{
		"container_memory_cache", "File cache in bytes.", Gauge, nil,
		counter{"memory.stat", "total_cache", 0},
		counter{"memory.stat", "file", 0},
	},
	{
		"container_memory_rss", "Anonymous memory in bytes.", Gauge, nil,
		counter{"memory.stat", "total_rss", 0},
		counter{"memory.stat", "anon", 0},
	},
	{
		"container_memory_mapped_file", "Mapped files in bytes.", Gauge, nil,
		counter{"memory.stat", "total_mapped_file", 0},
		counter{"memory.stat", "file_mapped", 0},
	},
	{
		"container_memory_swap", "Swap in bytes.", Gauge, nil,
		counter{"memory.stat", "total_swap", 0},
		counter{"memory.swap.current", "", 0},
	},
	{
		"container_memory_kernel_usage", "The kernel's memory in bytes.", Gauge, nil,
		counter{"memory.kmem.usage_in_bytes", "", 0},
		counter{"memory.stat", "kernel", 0},
	},
	{
		"container_memory_failcnt", "How often the memory limit was reached.", Counter, nil,
		counter{"memory.failcnt", "", 0},
		counter{"memory.events", "max", 0},
	},
	{
		Name: "container_memory_failures_total", Help: "Page faults.", Kind: Counter,
		labels: []string{"failure_type", "scope"},
	},
	{
		"container_oom_events_total", "Processes that were killed for the memory limit.", Counter, nil,
		counter{"memory.oom_control", "oom_kill", 0},
		counter{"memory.events", "oom_kill", 0},
	},
	pressure("cpu_waiting", "cpu", "some", "Time in which a task waited for a CPU."),
	pressure("cpu_stalled", "cpu", "full", "Time in which all tasks waited for a CPU."),
	pressure("memory_waiting", "memory", "some", "Time in which a task waited for memory."),
	pressure("memory_stalled", "memory", "full", "Time in which all tasks waited for memory."),
	pressure("io_waiting", "io", "some", "Time in which a task waited for a device."),
	pressure("io_stalled", "io", "full", "Time in which all tasks waited for a device."),
	{
		"container_threads", "Threads.", Gauge, nil,
		counter{"pids.current", "", 0},
		counter{"pids.current", "", 0},
	},
	{
		"container_threads_max", "The limit of threads; 0 for none.", Gauge, nil,
		counter{"pids.max", "", 0},
		counter{"pids.max", "", 0},
	},
	{Name: "container_processes", Help: "Processes.", Kind: Gauge},
	{Name: "container_file_descriptors", Help: "Open file descriptors, if they are not too many.", Kind: Gauge},
	{Name: "container_sockets", Help: "File descriptors of sockets, likewise.", Kind: Gauge},
	{Name: "container_start_time_seconds", Help: "When the container was started, since 1970.", Kind: Gauge},
	{Name: "container_last_seen", Help: "When the metrics were read, since 1970.", Kind: Gauge},
	{Name: "container_spec_cpu_period", Help: "The period of the CPU quota in microseconds.", Kind: Gauge},
	{Name: "container_spec_cpu_quota", Help: "The CPU quota in microseconds, where there is one.", Kind: Gauge},
	{Name: "container_spec_cpu_shares", Help: "The CPU shares.", Kind: Gauge},
	{Name: "container_spec_memory_limit_bytes", Help: "The memory limit; 0 for none.", Kind: Gauge},
	{Name: "container_spec_memory_swap_limit_bytes", Help: "The limit of memory and swap; 0 for none.", Kind: Gauge},

	{Name: "container_fs_usage_bytes", Help: "What the container has written.", Kind: Gauge, labels: byDevice()},
	{Name: "container_fs_limit_bytes", Help: "The size of the file system.", Kind: Gauge, labels: byDevice()},
	{Name: "container_fs_inodes_total", Help: "Inodes of the file system.", Kind: Gauge, labels: byDevice()},
	{Name: "container_fs_inodes_free", Help: "Free inodes of the file system.", Kind: Gauge, labels: byDevice()},
	{Name: "container_fs_reads_bytes_total", Help: "Bytes read from the device.", Kind: Counter, labels: byDevice()},
	{Name: "container_fs_writes_bytes_total", Help: "Bytes written to the device.", Kind: Counter, labels: byDevice()},
	{Name: "container_fs_reads_total", Help: "Reads from the device.", Kind: Counter, labels: byDevice()},
	{Name: "container_fs_writes_total", Help: "Writes to the device.", Kind: Counter, labels: byDevice()},
	{
		Name: "container_blkio_device_usage_total", Help: "Bytes read from the device or written to it.", Kind: Counter,
		labels: []string{"device", "major", "minor", "operation"},
	},

	{Name: "container_network_receive_bytes_total", Help: "Bytes received.", Kind: Counter, labels: byInterface()},
	{Name: "container_network_receive_packets_total", Help: "Packets received.", Kind: Counter, labels: byInterface()},
	{Name: "container_network_receive_errors_total", Help: "Errors of receipt.", Kind: Counter, labels: byInterface()},
	{
		Name: "container_network_receive_packets_dropped_total", Help: "Packets dropped in receipt.", Kind: Counter,
		labels: byInterface(),
	},
	{Name: "container_network_transmit_bytes_total", Help: "Bytes sent.", Kind: Counter, labels: byInterface()},
	{Name: "container_network_transmit_packets_total", Help: "Packets sent.", Kind: Counter, labels: byInterface()},
	{Name: "container_network_transmit_errors_total", Help: "Errors of sending.", Kind: Counter, labels: byInterface()},
	{
		Name: "container_network_transmit_packets_dropped_total", Help: "Packets dropped in sending.", Kind: Counter,
		labels: byInterface(),
	},
}

func byDevice() []string    { return []string{"device"} }
func byInterface() []string { return []string{"interface"} }

// pressure is a metric of a file that has a line for some tasks and one for all (Documentation/accounting/psi.rst).
func pressure(name, file, tasks, help string) Metric {
	of := counter{file + ".pressure", tasks + " total", microsecond}
	return Metric{Name: "container_pressure_" + name + "_seconds_total", Help: help, Kind: Counter, v2: of}
}

// deviceMetrics are those of block devices, which cgroups have in a line for each device. Operation is that of
// container_blkio_device_usage_total, "" for none.
var deviceMetrics = []struct{ name, operation, v1, v1Key, v2Key string }{ //nolint:gochecknoglobals // as above
	{"container_fs_reads_bytes_total", "Read", "blkio.throttle.io_service_bytes_recursive", "Read", "rbytes"},
	{"container_fs_writes_bytes_total", "Write", "blkio.throttle.io_service_bytes_recursive", "Write", "wbytes"},
	{"container_fs_reads_total", "", "blkio.throttle.io_serviced_recursive", "Read", "rios"},
	{"container_fs_writes_total", "", "blkio.throttle.io_serviced_recursive", "Write", "wios"},
}

// networkMetrics are the columns of an interface in proc_pid_net(5), dev.
var networkMetrics = []struct { //nolint:gochecknoglobals // as above
	name   string
	column int
}{
	{"container_network_receive_bytes_total", RxBytes},
	{"container_network_receive_packets_total", RxBytes + 1},
	{"container_network_receive_errors_total", RxErrors},
	{"container_network_receive_packets_dropped_total", RxErrors + 1},
	{"container_network_transmit_bytes_total", TxBytes},
	{"container_network_transmit_packets_total", TxBytes + 1},
	{"container_network_transmit_errors_total", TxErrors},
	{"container_network_transmit_packets_dropped_total", TxErrors + 1},
}
