// Package spec is what a container is made from, as plain data: the planning
// decides it, a runtime (supervisor.Runtime) carries it out. Neither side needs the
// other, and the data needs neither cgo nor a runtime's library.
package spec

import "os"

// Spec describes one app's container. It is plain data, decided elsewhere;
// nothing in it refers to appc.
type Spec struct {
	// Name identifies the container in the pod, in errors and in the
	// runtime's state directory; unique among live containers.
	Name string

	// Root is the app's root file system, an absolute path in the caller's
	// mount namespace. It must be a mount point or will be made one.
	Root         string
	ReadOnlyRoot bool

	// Backing are folders behind Root, absolute paths in the caller's mount
	// namespace, in which Root's file system links and renames with the credentials of the
	// app (aufs). A runtime that confines the app allows it that as below Root, and
	// nothing more. They must exist when a container starts.
	Backing []string

	Process Process
	Mounts  []Mount

	// Files are the main process's descriptors from 3 on, in this order. With
	// any, LISTEN_PID, its own number, is added to its environment; the rest of
	// sd_listen_fds(3) is Process.Env's. Whoever made them closes them, once no
	// container of the spec will be started any more.
	Files []*os.File

	// Devices are device nodes beyond the default ones that the container's
	// processes may use; they are bound in by Mounts.
	Devices []Device

	// Cgroup is the container's cgroup, an absolute path below every mounted
	// hierarchy, for example "/apps/db".
	Cgroup    string
	Resources Resources

	// Privileged leaves out masked and read-only paths and the device policy.
	Privileged bool

	OOMScoreAdj     int    // -1000 to 1000
	AppArmorProfile string // "" for none
	SELinuxLabel    string // user:role:type:level, "" for none
}

// Process is a process to run in the container.
type Process struct {
	// Args is the program and its arguments. Args[0] with a slash is a path,
	// relative to Dir where it does not begin with one; without a slash it is looked up
	// in Env's PATH, else in /bin and /usr/bin (appc, aci.md, exec).
	Args []string

	// Env is the whole environment, NAME=value.
	Env []string

	// Dir is the working directory, absolute; "" is "/". It must exist.
	Dir string

	// User and Group are resolved inside the container's assembled root:
	// by name in /etc/passwd and /etc/group first, else as a decimal number;
	// a value that begins with "/" means the owner or group of that file
	// (appc, aci.md, user and group).
	User, Group      string
	SupplementaryGID []int

	// Root has the process run as user and group 0, whatever User and Group say.
	Root bool

	// Capabilities is the bounding set, names such as "CAP_CHOWN". A process
	// of uid 0 has exactly these, any other none until it executes a file
	// that grants some.
	Capabilities []string

	NoNewPrivileges bool

	// Seccomp is the filter to load last, after everything else.
	Seccomp Seccomp
}

// Mount is one mount inside the container, made in the order given.
type Mount struct {
	// Source is an absolute path in the caller's mount namespace for a bind,
	// else the file system's source.
	Source string
	// Target is the absolute path inside the container; it is resolved
	// inside the root, and made when it is missing.
	Target    string
	Type      string // "bind", or a file system type such as "tmpfs"
	ReadOnly  bool   // with Recursive, submounts included
	Recursive bool   // bind with submounts
	Options   string // data of the file system, for example "mode=1777"
}

// Device is a device node a container's processes may use.
type Device struct {
	Type         rune // 'b' or 'c'
	Major, Minor int64
	Access       string // of "rwm"
}

// Resources are limits of the container's cgroup. Zero means no limit.
type Resources struct {
	MemoryLimit   int64  // bytes, hard
	MemoryRequest int64  // bytes, protected (v2 memory.low) or soft (v1)
	CPUQuota      int64  // microseconds of CPU time in each CPUPeriod
	CPUPeriod     uint64 // microseconds
	CPUShares     uint64 // 2 to 262144, cgroup v1's scale
	PIDs          int64  // number of tasks

	// BlockBandwidth and BlockIOPS apply to every block device that there is
	// when the cgroup is made, reads and writes each. Version 1 counts no
	// buffered writes, and a limit there is of one cgroup, not of those below.
	BlockBandwidth uint64 // bytes a second
	BlockIOPS      uint64 // operations a second
}
