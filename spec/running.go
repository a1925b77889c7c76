package spec

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Running is a started process. Package child implements it for a child of the program. Its methods may be called by
// several goroutines at once.
type Running interface {
	// PID is the process's number in the supervisor's PID namespace. Once Done is closed, the number may belong to
	// another process.
	PID() int

	// Done is closed when the process has ended and its number is free.
	Done() <-chan struct{}

	// Status is how the process ended. It may be called once Done is closed.
	Status() syscall.WaitStatus

	// Signal sends a signal to the process, never to another process that has since got its number. It returns
	// os.ErrProcessDone when the process has ended.
	Signal(sig syscall.Signal) error
}

// Stdio are a process's descriptors 0, 1 and 2; nil means the container's own /dev/null, not the runtime's, whose
// mode a process of user 0 could change. The process's user becomes the owner of a pipe, so that a program can open
// /dev/stdout. The caller closes the files after the call.
//
// With Terminal, the process gets a terminal of its container's devpts instead, of the given size, as its
// controlling terminal. Start or Exec sends the terminal's master to Console before it returns; the receiver closes it.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File

	Terminal      bool
	Width, Height uint16
	Console       chan<- *os.File // buffered, of capacity 1
}

// Command is a process to run in a container beside its main process.
type Command struct {
	Args             []string // Args[0] without a slash is looked up in PATH
	Env              []string // see Process
	User, Group      string   // see Process
	SupplementaryGID []int
	Dir              string // absolute; "" is "/"
}

// ExecError says why the kernel did not execute a program in a container that was ready.
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
