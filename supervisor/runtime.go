package supervisor

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Container is what the supervisor asks of a container runtime for one app: a
// root file system, namespaces and a cgroup that are ready to run processes.
// The package container implements it with libcontainer; another runtime is
// another implementation.
//
// One that can tell a death for want of memory has a method OOMKilled() bool as
// well, which says whether that has ended the main process, not another one. It is
// asked when the main process has ended by a SIGKILL that the supervisor did not send.
//
// Start is called once. Exec, Kill and PIDs may be called by several
// goroutines at once, while the main process runs, Kill during the start as well.
// Destroy is called last, once, with no other call under way.
type Container interface {
	// Start starts the app's main process, with no signal ignored or blocked, and
	// returns once it has executed the app's program. A program that cannot be found or executed is an
	// *ExecError; after any error no process of the container is left.
	Start(stdio Stdio) (Process, error)

	// Exec starts a further process in the running container, with the same
	// contract as Start.
	Exec(cmd Command, stdio Stdio) (Process, error)

	// PIDs returns the processes in the container's cgroup, descendants of
	// Exec's processes included, as numbers of the caller's PID namespace.
	PIDs() ([]int, error)

	// Kill sends SIGKILL to every process in the container's cgroup. Those that
	// are forked meanwhile may be missed, and none has ended yet: the
	// supervisor calls it again until PIDs is empty. It is no error when there is none.
	Kill() error

	// Destroy removes the container's cgroup and runtime state. All of its
	// processes must have ended. It may be called without Start.
	Destroy() error
}

// Process is a started process. Its exit status comes from the Reaper, which
// owns wait(2) for the whole program.
type Process interface {
	// PID is the process's number in the supervisor's PID namespace.
	PID() int

	// Release frees what the runtime keeps for the process. The supervisor
	// calls it once, after the reaper has collected the process.
	Release()
}

// Stdio is what a process gets as descriptors 0, 1 and 2. A nil file means
// /dev/null. The callee duplicates what it keeps; the caller closes its own.
//
// When Terminal is set the process gets a terminal of its container's own
// devpts instead, as its controlling terminal, of the given size; the
// process's Start or Exec sends the terminal's master to Console before it
// returns, and whoever receives it closes it. Stdin, Stdout and Stderr are
// then ignored.
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
	User, Group      string   // appc's rules, see container.Process
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

// Error implements error. It is one line whatever the program's name is.
func (e *ExecError) Error() string {
	path := e.Path
	if !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		path = strconv.Quote(path)
	}
	return "exec " + path + ": " + e.Errno.Error()
}

// Unwrap gives the errno, so that errors.Is(err, fs.ErrNotExist) works.
func (e *ExecError) Unwrap() error { return e.Errno }

// ExitCode is 127 for a missing program, 126 for any other reason.
func (e *ExecError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}
