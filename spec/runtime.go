package spec

import "time"

// Limits of a start: the supervisor kills what has not executed its program by then, and the start fails. A start
// takes some 10 ms; an emulated machine needs 100 times as long for one, and a pod starts eight apps at once.
const (
	StartLimit = time.Minute      // of an app or a handler
	ExecLimit  = 20 * time.Second // of a command, for which a person waits
)

// Runtime makes the containers of one pod. containertest.Run checks an implementation. Its methods may be called
// by several goroutines at once, in the order stated below. Only Container may start processes while the
// supervisor runs (see the interface Container).
type Runtime interface {
	// Support returns the isolators that the runtime enforces on this machine. It may be called at any time.
	Support() Support

	// Prepare makes the runtime ready, once, before MakePod, Container and Close. dir is a folder for the runtime's
	// files, on a file system that vanishes with the caller's mount namespace. dir is empty, except for a folder
	// "shm" if the caller has mounted the apps' /dev/shm there; otherwise the runtime makes that
	// folder. limits are the pod's. Prepare kills processes that an earlier supervisor left in the pod's cgroup.
	Prepare(dir string, limits Resources) error

	// MakePod makes the pod's cgroup with its limits, once, before the first Start. The apps' roots may be mounted
	// meanwhile.
	MakePod() error

	// Container returns a container of the spec. The spec's Cgroup is below the pod's. It touches nothing before Start.
	Container(s Spec) (Container, error)

	// KillPod sends SIGKILL to every process in the pod's cgroup until none is left. After a few seconds it returns an
	// error with the number of processes left. It may be called at any time, and a missing cgroup is no error.
	KillPod() error

	// Close removes the pod's cgroup and frees the runtime's resources. It is called last, once, after each
	// container's Destroy, and also after a failed Prepare.
	Close() error
}

// The ways in which a Selectable starts processes.
const (
	DirectStarts       = "direct"       // by forks of the pod's init
	LibcontainerStarts = "libcontainer" // by executions of libcontainer
)

// Starters returns the names of the ways, which the key "runtime" of the stager's configuration takes.
func Starters() []string { return []string{DirectStarts, LibcontainerStarts} }

// Selectable is a Runtime that can start processes in more than one way.
type Selectable interface {
	Runtime

	// SelectStarts selects the way by its name, "" for the runtime's own choice. It is called at most once, before
	// Prepare. Where the machine lacks what a way needs, or the way does not fit the pod's namespaces, the runtime takes
	// another one and logs why.
	SelectStarts(name string)
}

// Container is one app's container: a root, namespaces and a cgroup in which processes run.
//
// Order of calls: Start at most once; Exec while the main process runs; PIDs after a successful Start; Kill at any
// time before Destroy, also before and during Start and after the main process's end; Destroy last, once, alone,
// also after a failed Start or none. Several goroutines may call Exec, Kill and PIDs at once.
//
// Child processes: nothing else in the program waits for children of a runtime. The runtime collects each child that
// it starts, and leaves none except the process that Start or Exec returns, which it collects before Done is closed.
//
// Limits in time: apps can stop or kill the processes of a start (kill(2)). After StartLimit the supervisor calls
// Kill until Start returns, and kills a process that Start still returns; Exec itself kills what it has started after
// ExecLimit. The limits end with the exec of the program. A runtime that forks into the pod's PID namespace with
// vfork(2), as os/exec does, is itself stopped by an app's SIGSTOP between fork and exec. Children of the pod's init
// are continued by init (package pid1).
type Container interface {
	// Start starts the main process, with no signal ignored or blocked, and returns after the exec of the app's
	// program. A program that cannot be found or executed is an *ExecError. After any error no process is left.
	Start(stdio Stdio) (Running, error)

	// Exec starts another process in the running container, with the contract of Start.
	Exec(cmd Command, stdio Stdio) (Running, error)

	// PIDs returns the processes in the container's cgroup, in any order, as numbers of the supervisor's PID namespace.
	PIDs() ([]int, error)

	// Kill sends SIGKILL to every process in the container's cgroup, and need not wait. It may miss processes that are
	// being forked: the supervisor repeats it until PIDs is empty. An empty or missing cgroup is no error.
	Kill() error

	// Destroy removes the container's cgroup and state. Its processes have ended, except those that have survived
	// SIGKILL for seconds: what they prevent from being removed is an error.
	Destroy() error
}

// OOMReporter is a Container that recognises out-of-memory kills.
type OOMReporter interface {
	Container

	// OOMKilled returns whether an out-of-memory kill ended the main process. The supervisor calls it at most once,
	// before Destroy, if a SIGKILL ended the main process before the supervisor forced the pod's end. The SIGKILL may
	// be the app's stop signal.
	OOMKilled() bool
}
