package spec

// Support says what a runtime can enforce on this machine. Package plan reports an isolator that
// the runtime cannot enforce as ignored or changed.
type Support struct {
	AppArmor, SELinux bool // the kernel has them enabled, and the runtime applies them
	Seccomp           bool // the runtime loads filters
	UserNamespaces    bool // the runtime starts containers in the one that a Spec names

	Hostname string // of the caller's UTS namespace

	// Capabilities are the names, CAP_…, of the capabilities that the caller has, and so can
	// grant.
	Capabilities []string

	// Withheld names, for people, what a privileged container should have and does not get
	// on this machine, such as "CAP_PERFMON"; nil if it gets everything.
	Withheld []string

	// MinOOMScoreAdj is the lowest oom_score_adj that the caller may set. Without
	// CAP_SYS_RESOURCE that is the lowest value that a process with that capability has set
	// for it (proc_pid_oom_score_adj(5)).
	MinOOMScoreAdj int

	CPULimits, MemoryLimits bool // the caller's cgroups have the controllers
	PIDLimits               bool // and a limit of tasks
	MemoryRequests          bool // an app's request protects it from the whole machine: cgroup v1
	BlockLimits             BlockLimits
}

// BlockLimits says how a machine can limit block devices.
type BlockLimits int

// What the cgroups of a machine can limit.
const (
	NoBlockLimits     BlockLimits = iota
	DirectBlockLimits             // direct writes and all reads of one cgroup: version 1
	FullBlockLimits               // all operations of a cgroup and the cgroups below: version 2
)
