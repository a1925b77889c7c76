package server

import (
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metric is one of cAdvisor's metrics, by which Prometheus knows containers.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	labels     []string // beside the common ones
	v1, v2     counter  // where hierarchies of each version have it; none for a metric that is found otherwise
}

// ofQuota reports whether a metric is that of the CPU quota, which most containers have not.
func (m metric) ofQuota() bool { return strings.HasPrefix(m.name, "container_cpu_cfs_") }

// counter is a number in a file of a cgroup.
type counter struct {
	file string
	key  string // the words before the number in its line; "" if the line is the number
	unit uint64 // how many of the number are one of the metric; 0 for one
}

const (
	count = runtimeapi.MetricType_COUNTER
	gauge = runtimeapi.MetricType_GAUGE
)

// Units of time in cgroups' files: how many are a second.
const (
	nanosecond  = 1_000_000_000
	microsecond = 1_000_000
	tick        = 100 // USER_HZ
)

// metrics are all that the server knows. The CRI's values are whole numbers: seconds are rounded down.
var metrics = []metric{ //nolint:gochecknoglobals // a table that is only read
	{
		"container_cpu_usage_seconds_total", "CPU time.", count,
		[]string{"cpu"},
		counter{"cpuacct.usage", "", nanosecond},
		counter{"cpu.stat", "usage_usec", microsecond},
	},
	{
		"container_cpu_user_seconds_total", "CPU time in user mode.", count, nil,
		counter{"cpuacct.stat", "user", tick},
		counter{"cpu.stat", "user_usec", microsecond},
	},
	{
		"container_cpu_system_seconds_total", "CPU time in the kernel.", count, nil,
		counter{"cpuacct.stat", "system", tick},
		counter{"cpu.stat", "system_usec", microsecond},
	},
	{
		"container_cpu_cfs_periods_total", "Periods of the CPU quota.", count, nil,
		counter{"cpu.stat", "nr_periods", 0},
		counter{"cpu.stat", "nr_periods", 0},
	},
	{
		"container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota was used up.", count, nil,
		counter{"cpu.stat", "nr_throttled", 0},
		counter{"cpu.stat", "nr_throttled", 0},
	},
	{
		"container_cpu_cfs_throttled_seconds_total", "Time in which the CPU quota was used up.", count, nil,
		counter{"cpu.stat", "throttled_time", nanosecond},
		counter{"cpu.stat", "throttled_usec", microsecond},
	},
	{
		"container_memory_usage_bytes", "Memory with the file cache.", gauge, nil,
		counter{"memory.usage_in_bytes", "", 0},
		counter{"memory.current", "", 0},
	},
	{
		"container_memory_max_usage_bytes", "The most memory that was used.", gauge, nil,
		counter{"memory.max_usage_in_bytes", "", 0},
		counter{"memory.peak", "", 0},
	},
	{name: "container_memory_working_set_bytes", kind: gauge, help: "Memory without the file cache that is not in use."},
	{
		"container_memory_cache", "File cache in bytes.", gauge, nil,
		counter{"memory.stat", "total_cache", 0},
		counter{"memory.stat", "file", 0},
	},
	{
		"container_memory_rss", "Anonymous memory in bytes.", gauge, nil,
		counter{"memory.stat", "total_rss", 0},
		counter{"memory.stat", "anon", 0},
	},
	{
		"container_memory_mapped_file", "Mapped files in bytes.", gauge, nil,
		counter{"memory.stat", "total_mapped_file", 0},
		counter{"memory.stat", "file_mapped", 0},
	},
	{
		"container_memory_swap", "Swap in bytes.", gauge, nil,
		counter{"memory.stat", "total_swap", 0},
		counter{"memory.swap.current", "", 0},
	},
	{
		"container_memory_kernel_usage", "The kernel's memory in bytes.", gauge, nil,
		counter{"memory.kmem.usage_in_bytes", "", 0},
		counter{"memory.stat", "kernel", 0},
	},
	{
		"container_memory_failcnt", "How often the memory limit was reached.", count, nil,
		counter{"memory.failcnt", "", 0},
		counter{"memory.events", "max", 0},
	},
	{
		name: "container_memory_failures_total", help: "Page faults.", kind: count,
		labels: []string{"failure_type", "scope"},
	},
	{
		"container_oom_events_total", "Processes that were killed for the memory limit.", count, nil,
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
		"container_threads", "Threads.", gauge, nil,
		counter{"pids.current", "", 0},
		counter{"pids.current", "", 0},
	},
	{
		"container_threads_max", "The limit of threads; 0 for none.", gauge, nil,
		counter{"pids.max", "", 0},
		counter{"pids.max", "", 0},
	},
	{name: "container_processes", help: "Processes.", kind: gauge},
	{name: "container_file_descriptors", help: "Open file descriptors, if they are not too many.", kind: gauge},
	{name: "container_sockets", help: "File descriptors of sockets, likewise.", kind: gauge},
	{name: "container_start_time_seconds", help: "When the container was started, since 1970.", kind: gauge},
	{name: "container_last_seen", help: "When the metrics were read, since 1970.", kind: gauge},
	{name: "container_spec_cpu_period", help: "The period of the CPU quota in microseconds.", kind: gauge},
	{name: "container_spec_cpu_quota", help: "The CPU quota in microseconds, where there is one.", kind: gauge},
	{name: "container_spec_cpu_shares", help: "The CPU shares.", kind: gauge},
	{name: "container_spec_memory_limit_bytes", help: "The memory limit; 0 for none.", kind: gauge},
	{name: "container_spec_memory_swap_limit_bytes", help: "The limit of memory and swap; 0 for none.", kind: gauge},

	{name: "container_fs_usage_bytes", help: "What the container has written.", kind: gauge, labels: byDevice()},
	{name: "container_fs_limit_bytes", help: "The size of the file system.", kind: gauge, labels: byDevice()},
	{name: "container_fs_inodes_total", help: "Inodes of the file system.", kind: gauge, labels: byDevice()},
	{name: "container_fs_inodes_free", help: "Free inodes of the file system.", kind: gauge, labels: byDevice()},
	{name: "container_fs_reads_bytes_total", help: "Bytes read from the device.", kind: count, labels: byDevice()},
	{name: "container_fs_writes_bytes_total", help: "Bytes written to the device.", kind: count, labels: byDevice()},
	{name: "container_fs_reads_total", help: "Reads from the device.", kind: count, labels: byDevice()},
	{name: "container_fs_writes_total", help: "Writes to the device.", kind: count, labels: byDevice()},
	{
		name: "container_blkio_device_usage_total", help: "Bytes read from the device or written to it.", kind: count,
		labels: []string{"device", "major", "minor", "operation"},
	},

	{name: "container_network_receive_bytes_total", help: "Bytes received.", kind: count, labels: byInterface()},
	{name: "container_network_receive_packets_total", help: "Packets received.", kind: count, labels: byInterface()},
	{name: "container_network_receive_errors_total", help: "Errors of receipt.", kind: count, labels: byInterface()},
	{
		name: "container_network_receive_packets_dropped_total", help: "Packets dropped in receipt.", kind: count,
		labels: byInterface(),
	},
	{name: "container_network_transmit_bytes_total", help: "Bytes sent.", kind: count, labels: byInterface()},
	{name: "container_network_transmit_packets_total", help: "Packets sent.", kind: count, labels: byInterface()},
	{name: "container_network_transmit_errors_total", help: "Errors of sending.", kind: count, labels: byInterface()},
	{
		name: "container_network_transmit_packets_dropped_total", help: "Packets dropped in sending.", kind: count,
		labels: byInterface(),
	},
}

func byDevice() []string    { return []string{"device"} }
func byInterface() []string { return []string{"interface"} }

// pressure is a metric of a file that has a line for some tasks and one for all (Documentation/accounting/psi.rst).
func pressure(name, file, tasks, help string) metric {
	of := counter{file + ".pressure", tasks + " total", microsecond}
	return metric{name: "container_pressure_" + name + "_seconds_total", help: help, kind: count, v2: of}
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
	{"container_network_receive_bytes_total", rxBytes},
	{"container_network_receive_packets_total", rxBytes + 1},
	{"container_network_receive_errors_total", rxErrors},
	{"container_network_receive_packets_dropped_total", rxErrors + 1},
	{"container_network_transmit_bytes_total", txBytes},
	{"container_network_transmit_packets_total", txBytes + 1},
	{"container_network_transmit_errors_total", txErrors},
	{"container_network_transmit_packets_dropped_total", txErrors + 1},
}
