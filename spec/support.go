package spec

// Support says what a runtime can enforce on this machine. The planning asks it for
// each isolator, and reports one that the runtime cannot enforce as ignored or changed.
type Support struct {
	AppArmor, SELinux bool // the kernel has them, switched on, and the runtime applies them
	Seccomp           bool // the runtime loads filters

	// Capabilities are the names, CAP_…, of those that the caller has and so can give.
	Capabilities []string

	// Withheld names, for people, what a privileged container would have and does not get
	// here, such as "CAP_PERFMON"; nil when it gets all.
	Withheld []string

	// MinOOMScoreAdj is the lowest oom_score_adj that the caller may set:
	// without CAP_SYS_RESOURCE that is its own (proc_pid_oom_score_adj(5)).
	MinOOMScoreAdj int

	CPULimits, MemoryLimits bool // the cgroups that the caller got have them
	MemoryRequests          bool // an app's request is kept from the whole machine: cgroup v1
	BlockLimits             BlockLimits
}

// BlockLimits says how a machine can limit block devices.
type BlockLimits int

// What the cgroups of a machine can limit.
const (
	NoBlockLimits     BlockLimits = iota
	DirectBlockLimits             // of direct and read operations of one cgroup: version 1
	FullBlockLimits               // of all operations of a cgroup and those below: version 2
)
