package supervisor

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/reap"
)

// Limits of a start. What has not started by then is killed, and its start fails. A start takes some 10 ms; an emulated
// machine takes 100 times as long for one, and a pod starts eight apps at once.
const (
	StartLimit = time.Minute      // of an app or a handler
	ExecLimit  = 20 * time.Second // of a command, for which a person waits
)

// Runtime makes the containers of one pod. A stager chooses one in one place, so that a
// fork can bring another; containertest.Run checks an implementation. Its methods may be
// called by several goroutines at once, in the order that they say. Only Container is called
// inside the reaper's Spawn (see Container): while a reaper runs, the others must not start processes.
type Runtime interface {
	// Support says which isolators the runtime enforces on this machine. It may be
	// called at any time, before Prepare as well.
	Support() spec.Support

	// Prepare makes the runtime ready. dir is a folder for what the runtime keeps,
	// on a file system that vanishes with the caller's mount namespace. It is empty, but for a
	// folder "shm" if the caller has mounted the file system that is to be the apps' /dev/shm there;
	// otherwise the runtime makes that folder. limits are those of
	// the pod's cgroup. Processes that a supervisor before this one has left in
	// that cgroup are killed. It is called once, before the three below.
	Prepare(dir string, limits spec.Resources) error

	// MakePod makes the pod's cgroup with its limits. It is called once, before the
	// first container starts; the apps' roots may be mounted meanwhile.
	MakePod() error

	// Container returns a container of the spec, whose Cgroup is below the pod's. It
	// touches nothing before Start.
	Container(s spec.Spec) (Container, error)

	// KillPod sends SIGKILL to every process in the pod's cgroup, until none is left or
	// a few seconds have passed, which is an error that says how many are. It may be called
	// at any time, before Prepare as well. It is not an error when there is no such cgroup.
	KillPod() error

	// Close removes the pod's cgroup and frees what the runtime holds. It is called last, once,
	// after every container has been destroyed, and also after a Prepare that has failed.
	Close() error
}

// Container is what the supervisor asks of a container runtime for one app: a
// root file system, namespaces and a cgroup that are ready to run processes.
// The package container implements it with libcontainer; another runtime is
// another implementation. One that can recognise an out-of-memory kill also implements
// OOMReporter.
//
// The order of calls: Start is called at most once. Kill may be called at any time before
// Destroy, also just before Start, while Start is under way, and after the main process
// has ended. Exec is called while the main process runs, PIDs after Start has succeeded;
// several goroutines may call Exec, Kill and PIDs at once. Destroy is called last, once, with no
// other call under way, also when Start failed or was not called.
//
// Child processes: the reaper takes the status of every child of the program
// that it does not know, except those of a call of reap.Reaper.Spawn that is under way. The supervisor calls
// the functions that make a Container (App.Main, App.PreStart, App.PostStop), Start and
// Exec inside Spawn: these may start helper processes, not on the program's first thread, must wait for them themselves, not later
// than two seconds after their ends, and must leave none behind but the process that they return. Kill, PIDs, OOMKilled,
// Destroy and Process.Release run outside Spawn: these must not start processes.
//
// Limits in time: apps can stop or kill the processes of a start (kill(2)). After StartLimit the supervisor calls
// Kill until Start returns, and kills a process that it returns even then; Exec itself kills what it has started. A runtime that forks in the pod's PID namespace
// with vfork(2), as the os/exec package does, also sees to it that an app's SIGSTOP between fork and exec blocks nothing
// but that start: package container does, a runtime without cgo cannot. The limit ends with the exec: a command that is
// stopped then is a process of the app like any other, which may have stopped itself, and stays so until it is continued or killed.
type Container interface {
	// Start starts the app's main process, with no signal ignored or blocked, and
	// returns once it has executed the app's program. A program that cannot be found or
	// executed is an *ExecError; after any error no process of the container is left.
	Start(stdio Stdio) (Process, error)

	// Exec starts a further process in the running container, with the same
	// contract as Start. What has not started within ExecLimit is killed, and an error.
	Exec(cmd Command, stdio Stdio) (Process, error)

	// PIDs returns the processes in the container's cgroup, descendants of
	// Exec's processes included, in any order, as numbers of the supervisor's PID namespace.
	PIDs() ([]int, error)

	// Kill sends SIGKILL to every process in the container's cgroup. It may miss
	// processes that are being forked, and need not wait for the end of any: the
	// supervisor calls it again until PIDs is empty. It is not an error when there is none.
	Kill() error

	// Destroy removes the container's cgroup and runtime state. All of its
	// processes have ended.
	Destroy() error
}

// Holder is a Container whose Start can do all of its work but the last step before the program may be
// executed. It saves the time of that work where the supervisor has to wait for something, such as the pod's networks. For
// a Container that is no Holder, the supervisor waits before Start.
type Holder interface {
	Container

	// Hold has Start call wait, on any goroutine, before it executes the program. wait may take minutes. If it returns an error, Start fails
	// with it, wrapped or not. Hold is called at most once, before Start. While Start is in wait, Kill may
	// be called, and need not end wait.
	Hold(wait func() error)
}

// OOMReporter is a Container that can tell whether the kernel killed the main process
// because the container was out of memory.
type OOMReporter interface {
	Container

	// OOMKilled returns whether an out-of-memory kill ended the main process, and not
	// another process of the container. The supervisor calls it once at most, before Destroy, when
	// the main process has ended by a SIGKILL that the supervisor did not send.
	OOMKilled() bool
}

// Process is a started process. Its exit status comes from the reaper, which
// owns wait(2) for the whole program.
type Process = reap.Process

// Stdio is what a process gets as descriptors 0, 1 and 2. A nil file means
// /dev/null. The callee duplicates what it keeps; the caller closes its own.
//
// When Terminal is set the process gets a terminal of its container's own
// devpts instead, as its controlling terminal, of the given size. Start or Exec
// sends the terminal's master to Console before it returns; the receiver closes it.
// Stdin, Stdout and Stderr are then ignored.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File

	Terminal      bool
	Width, Height uint16
	Console       chan<- *os.File // buffered, of capacity 1
}

// Command is a process to run in a container beside its main process.
type Command struct {
	Args             []string // Args[0] without a slash is looked up in PATH
	Env              []string // NAME=value, complete: nothing is added
	User, Group      string   // appc's rules, see spec.Process
	SupplementaryGID []int
	Dir              string // absolute; "" is "/"
}

// ExecError says why a program could not be executed, after everything around
// it had been prepared. ExitCode is 127 when it was not found and 126 when it
// was found and could not be executed.
type ExecError struct {
	Path  string
	Errno syscall.Errno
}

// Error implements error. It is one line for every name of a program.
func (e *ExecError) Error() string {
	path := e.Path
	if !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		path = strconv.Quote(path)
	}
	return "exec " + path + ": " + e.Errno.Error()
}

// Unwrap returns the errno, so that errors.Is(err, fs.ErrNotExist) works.
func (e *ExecError) Unwrap() error { return e.Errno }

// ExitCode is 127 for a missing program, 126 for any other reason.
func (e *ExecError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}
