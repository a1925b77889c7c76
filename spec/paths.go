package spec

// MaskedPaths returns the paths in /proc and /sys that leak the machine's secrets. In a
// container that is not privileged, an empty file or folder hides each of them. Docker and
// containerd have the same list, but for process 1: in a pod that is the supervisor, and its mounts name
// folders of the host and images.
func MaskedPaths() []string {
	return []string{
		"/proc/1/mountinfo", "/proc/1/mounts", "/proc/1/mountstats", "/proc/1/task",

		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
		"/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

// ReadOnlyPaths returns the paths by which user 0 could change the machine, or the supervisor, as by
// /proc/1/oom_score_adj. They are read-only in a container that is not privileged. Docker
// and containerd have the same list, but for process 1.
func ReadOnlyPaths() []string {
	return []string{"/proc/1", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
