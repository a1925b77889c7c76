package spec

// MaskedPaths returns the paths in /proc and /sys that leak the machine's secrets. In a
// container that is not privileged, an empty file or folder hides each of them. Docker and
// containerd have the same list.
func MaskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
		"/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

// ReadOnlyPaths returns the paths by which user 0 could change the machine. They are read-only
// in a container that is not privileged. Docker and containerd have the same list.
func ReadOnlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
