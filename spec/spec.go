// Package spec is the contract between the supervisor and a runtime. It describes a container as plain data, which
// package plan decides, and what the supervisor asks of a runtime (Runtime, Container). Neither side
// needs the other, and the contract needs neither cgo nor a runtime's library. Beside it are the policies that package
// plan chooses for the supervisor.
package spec

import "os"

// MaxID is the largest user or group ID. To chown(2) and setresuid(2) the next one, -1 in 32 bits, means "no change".
const MaxID = 1<<32 - 2

// Spec describes one app's container. It is plain data, and nothing in it refers to appc.
type Spec struct {
	// Name identifies the container in the pod, in errors and in the
	// runtime's state directory. It is unique among live containers.
	Name string

	// Root is the app's root file system, an absolute path in the caller's
	// mount namespace. If it is not a mount point, the runtime makes it one.
	Root         string
	ReadOnlyRoot bool

	// Backing are folders in which Root's file system links and renames files with the app's
	// credentials (aufs). They are absolute paths in the caller's mount namespace. A runtime
	// that confines the app allows links and renames there as below Root, and nothing more. The
	// folders must exist when a container starts.
	Backing []string

	Process Process
	Mounts  []Mount

	// Files are the main process's descriptors from 3 on, in this order. If there are any,
	// the runtime adds LISTEN_PID, the process's own ID, to its environment; Process.Env has
	// the other variables of sd_listen_fds(3). The caller that opened the files closes them,
	// once it will start no more containers from the spec.
	Files []*os.File

	// Devices are the device nodes that the container's processes may use in addition to the
	// default ones. Mounts binds them into the container.
	Devices []Device

	// Cgroup is the container's cgroup, an absolute path below every mounted
	// hierarchy, for example "/apps/db".
	Cgroup    string
	Resources Resources

	// Privileged means a container without masked paths, read-only paths and device policy.
	Privileged bool

	// UserNamespace is the user namespace of all processes, nil for the caller's. The container has no powers over the
	// caller's other namespaces then: to mount, or to configure the network, for example.
	UserNamespace *UserNamespace

	// OwnPIDs makes a PID namespace for the container, in which the main process is 1: when it ends, the kernel kills the
	// others. The container's /proc shows this namespace, so neither the pod's process 1 nor other containers.
	OwnPIDs bool

	// MaskedPaths and ReadOnlyPaths are hidden or made read-only in a container that is not privileged, beside what
	// protects the pod's process 1. Nil is the list that Docker and containerd have.
	MaskedPaths, ReadOnlyPaths []string

	// HideProcesses hides every process in /proc that the reading one may not trace (proc(5), hidepid=ptraceable): the
	// pod's process 1 and other apps.
	HideProcesses bool

	OOMScoreAdj     int    // -1000 to 1000
	AppArmorProfile string // "" for none
	SELinuxLabel    string // user:role:type:level, "" for none
}

// Process is a process to run in the container.
type Process struct {
	// Args is the program and its arguments. If Args[0] has a slash, it is a path, relative to
	// Dir unless it begins with a slash. Without a slash the runtime looks it up as
	// Candidates says (appc, aci.md, exec).
	Args []string

	// Env is the whole environment, NAME=value. If HOME is not in it, the runtime adds the user's home folder by
	// /etc/passwd in the container's assembled root, or "/".
	Env []string

	// Dir is the working directory, absolute; "" is "/". It must exist, unless MakeDir has the runtime make it for the
	// main process: with mode 0755 and owner 0, after the mounts.
	Dir     string
	MakeDir bool

	// User and Group are resolved inside the container's assembled root: first as a name in
	// /etc/passwd and /etc/group, else as a decimal number. A value that begins with "/" means
	// the owner or group of that file (appc, aci.md, user and group).
	User, Group      string
	SupplementaryGID []int

	// NumericIDs has decimal numbers in User and Group not looked up as names: the root's own files, which its image or
	// its app writes, then have no say in which number that is.
	NumericIDs bool

	// Root runs the process as user and group 0, and overrides User and Group.
	Root bool

	// Capabilities is the bounding set, names such as "CAP_CHOWN". A process of uid 0 has
	// exactly these capabilities; any other process has none until it executes a file that
	// grants some.
	Capabilities []string

	// AmbientCapabilities are those of Capabilities that a process of any user has, also after it executes a file that
	// grants none (capabilities(7)). They are inheritable, too.
	AmbientCapabilities []string

	NoNewPrivileges bool

	// Seccomp is the filter. The runtime loads it last, after everything else.
	Seccomp Seccomp
}

// Mount binds a file or folder of the caller inside the container. Mounts are made in the order given.
type Mount struct {
	// Source is an absolute path in the caller's mount namespace.
	Source string
	// Target is the absolute path inside the container. The runtime resolves it inside the
	// root, and makes it if it is missing.
	Target    string
	Recursive bool // bind with submounts; the next three flags then cover the submounts
	ReadOnly  bool
	NoSuid    bool // set-ID bits and file capabilities have no effect
	NoDev     bool // device nodes cannot be opened

	// Propagation is that of a mount without the three flags: ToContainer, Apart or BothWays.
	Propagation Propagation
}

// Propagation says which mounts below a bind's source and its target appear in the other one (mount_namespaces(7)).
type Propagation string

// The propagations.
const (
	ToContainer Propagation = ""        // the caller's later mounts appear in the container, and not the other way round
	Apart       Propagation = "private" // none
	BothWays    Propagation = "shared"  // those of both, if the source is a shared mount
)

// Device is a device node that a container's processes may use.
type Device struct {
	Type         rune // 'b' or 'c'
	Major, Minor int64
	Access       string // letters of "rwm"
}

// Resources are limits of the container's cgroup. Zero means no limit.
type Resources struct {
	MemoryLimit   int64  // bytes, hard
	MemoryRequest int64  // bytes, protected (v2 memory.low) or soft (v1)
	CPUQuota      int64  // microseconds of CPU time in each CPUPeriod
	CPUPeriod     uint64 // microseconds
	CPUShares     uint64 // 2 to 262144, cgroup v1's scale
	PIDs          int64  // number of tasks

	// BlockBandwidth and BlockIOPS apply to every block device that exists when the cgroup is
	// made, separately for reads and writes. Cgroup version 1 does not count buffered writes,
	// and its limits do not apply to the cgroups below.
	BlockBandwidth uint64 // bytes a second
	BlockIOPS      uint64 // operations a second
}
