package spec

import "slices"

// Masked returns the paths that an empty file or folder hides: the spec's, and those of the pod's process 1. Where
// that is not the init of package pid1, its mounts may name folders of the host and images.
func (s *Spec) Masked() []string {
	own := []string{"/proc/1/mountinfo", "/proc/1/mounts", "/proc/1/mountstats", "/proc/1/task"}
	return s.protected(own, s.MaskedPaths, defaultMaskedPaths())
}

// ReadOnly returns the paths that are read-only: the spec's, and those by which user 0 could change the pod's
// process 1, such as /proc/1/oom_score_adj.
func (s *Spec) ReadOnly() []string {
	return s.protected([]string{"/proc/1"}, s.ReadOnlyPaths, defaultReadOnlyPaths())
}

func (s *Spec) protected(own, paths, defaults []string) []string {
	if s.Privileged {
		return nil
	}
	if s.OwnPIDs {
		own = nil
	}
	if paths == nil {
		paths = defaults
	}
	return slices.Concat(own, paths)
}

// defaultMaskedPaths returns the paths in /proc and /sys that leak the machine's secrets. Docker and containerd have
// the same list.
func defaultMaskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
		"/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

// defaultReadOnlyPaths returns the paths by which user 0 could change the machine. Docker and containerd have the same
// list.
func defaultReadOnlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
