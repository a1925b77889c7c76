// Package pid1 is the beginning of a stager and the pod's PID 1, both in C, and the supervisor's side of the channel to
// the latter. A program that imports the package has them: a constructor of the C library (first.c) runs before the
// program's Go runtime. If the program is called by the name names.Program, without arguments, the constructor enters
// the stager's cgroup and mount namespace and forks the process that will become the init, for which Take returns an
// Init; then the Go runtime starts in the same process, which is the supervisor. init.h draws the messages, init.c is
// the init, and child.c and shim.c are what its children do until they are an app's program.
package pid1

// #cgo CFLAGS: -Wall -Wextra -Werror -O2 -I${SRCDIR}/../internal/c
// #cgo LDFLAGS: -pthread
// #include "child.h"
// #include "first.h"
import "C"

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/child"
	_ "kurma.io/stager/internal/c" // the C files include its headers
	"kurma.io/stager/internal/thread"
)

// Init is the pod's PID 1, or in the host's PID namespace the parent of the pod's orphans. Its methods may be called by
// several goroutines at once.
type Init struct {
	channel    *net.UnixConn
	begun      chan C.struct_init_message // has the answers to Begin; closed when the channel has ended
	gone, lost chan struct{}              // closed when the channel has ended; lost not by Close
	closing    atomic.Bool
	seed       int     // the process that makes init; 0 once it is collected
	pid        int     // from Begin on
	namespaces uintptr // likewise, as in clone(2)

	sending  sync.Mutex       // held while a message is sent: a start has several packets
	asked    chan chan answer // for the starts that init has not answered, in their order; each has room for the answer
	running  sync.Mutex
	children map[int32]*Child // guarded by running; by number in init's PID namespace
}

type answer struct {
	child *Child
	err   error
}

// maxAsked is how many starts may be under way at once: more than a supervisor has.
const maxAsked = 1024

// limit is how long init may take for an answer, to read its messages, and to end. A host's signal may have stopped it;
// a process of the pod that no signal reaches keeps it from its end.
const limit = 30 * time.Second

// init keeps the supervisor's main goroutine on the process's first thread, which it is certain to be on
// only here. A runtime has threads join a container's mount namespace and end there; the
// first thread cannot end, and would stay as what /proc/PID/root and /proc/PID/ns show of the supervisor.
func init() { //nolint:gochecknoinits // see above
	var seed C.pid_t
	if C.first_channel(&seed) >= 0 {
		runtime.LockOSThread()
	}
}

// Take returns the init that will be, if this process is a stager that a daemon has started, else nil. It is called
// once.
func Take() (*Init, error) {
	var seed C.pid_t
	fd := C.first_channel(&seed)
	if fd < 0 {
		return nil, nil //nolint:nilnil // no init is an answer here
	}
	return open(fd, seed)
}

// New returns a further init that will be. It forks this program with all of its memory: it is for programs that are no
// stager, such as tests.
func New() (*Init, error) {
	var seed C.pid_t
	fd, err := C.first_start(&seed)
	if fd < 0 {
		return nil, fmt.Errorf("fork init: %w", err)
	}
	return open(fd, seed)
}

// open takes the supervisor's end of a channel.
func open(fd C.int, seed C.pid_t) (*Init, error) {
	if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	file := os.NewFile(uintptr(fd), "channel")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("channel to init: %w", err)
	}
	channel, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("channel to init: descriptor %d is not a Unix socket", fd)
	}
	i := &Init{
		channel: channel, seed: int(seed),
		begun: make(chan C.struct_init_message, 2), gone: make(chan struct{}), lost: make(chan struct{}),
		asked: make(chan chan answer, maxAsked), children: make(map[int32]*Child),
	}
	go i.listen()
	return i, nil
}

// Begin makes init in new namespaces, as in clone(2), and passes it the ready pipe, nil for none, of which init keeps
// its copy until Up. It is called once, before the methods below; after an error only Close may be called.
func (i *Init) Begin(namespaces uintptr, ready *os.File) error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	files := []*os.File{os.NewFile(uintptr(self), "supervisor")}
	defer files[0].Close()
	if ready != nil {
		files = append(files, ready)
	}
	if err := i.send(&C.struct_init_message{kind: C.INIT_BEGIN, namespaces: C.uint32_t(namespaces)}, files); err != nil {
		return fmt.Errorf("make the pod's init: %w", err)
	}
	var end error
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		end = i.collectSeed()
	}()
	defer func() { <-collected; i.seed = 0 }()
	seed, over := collected, time.After(limit)
	for isReady := false; !isReady || i.pid == 0 || seed != nil; {
		select {
		case <-seed:
			if end != nil {
				return fmt.Errorf("make the pod's init: %w", end)
			}
			seed = nil
		case m, open := <-i.begun:
			if !open {
				return errors.New("make the pod's init: it has ended")
			}
			if isReady = isReady || m.kind == C.INIT_BEGUN; m.kind == C.INIT_BEGUN {
				continue
			}
			if m.error != 0 {
				return fmt.Errorf("make the pod's init: %w", os.NewSyscallError("clone", syscall.Errno(m.error)))
			}
			i.pid, i.namespaces = int(m.number), namespaces
		case <-over:
			return fmt.Errorf("make the pod's init: it has not begun after %s", limit)
		}
	}
	return nil
}

// collectSeed waits for the end of the process that makes init, which ends at once. An error says that it has not
// answered.
func (i *Init) collectSeed() error {
	status, err := collect(i.seed)
	if err == nil && status != 0 {
		err = errors.New("the process that makes it " + ending(status))
	}
	return err
}

// ending says in words how a process has ended.
func ending(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "was killed by " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("ended with exit status %d", status.ExitStatus())
}

// PID is init's number in the supervisor's PID namespace.
func (i *Init) PID() int { return i.pid }

// Namespace returns the path of one of init's namespaces, by its name in /proc/PID/ns, or "" if it is the
// supervisor's own. It is init's as long as the supervisor lives, which alone collects init.
func (i *Init) Namespace(name string) string {
	return thread.NamespaceOf(i.pid, i.namespaces, name)
}

// In calls do on a thread in init's IPC and UTS namespaces.
func (i *Init) In(do func() error) error {
	return thread.In([]string{i.Namespace("ipc"), i.Namespace("uts")}, do)
}

// Up has init close its copy of the ready pipe. It returns an error when init has ended.
func (i *Init) Up() error {
	return i.say(C.INIT_UP, 0)
}

// Lost is closed when init has ended, or cannot be reached, before Close. The pod's other processes have ended then or
// are about to, but for those in the host's PID namespace that init has not started itself: its children's orphans.
func (i *Init) Lost() <-chan struct{} { return i.lost }

// Close ends init, and with it what is left of the pod, or what Take or New has begun. It is called once. An error says
// that init has not ended: a process of the pod is in an uninterruptible wait.
func (i *Init) Close() error {
	i.closing.Store(true)
	if i.pid == 0 {
		err := i.channel.Close() // the process that would make init ends: it is in the cgroup
		if i.seed != 0 {
			_, seedErr := collect(i.seed)
			err = errors.Join(err, seedErr)
		}
		return err
	}
	_ = i.Up() // or init would wait for this process's end; an error is init's
	i.channel.Close()
	if i.namespaces&unix.CLONE_NEWPID != 0 {
		_ = unix.Kill(i.pid, unix.SIGKILL) // also where it is stopped; only collect collects it
	}
	_, err := collect(i.pid)
	return err
}

// collect waits for the end of a child that is about to end (wait(2)).
func collect(pid int) (status syscall.WaitStatus, err error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	if err := child.Await(pidfd, time.Now().Add(limit)); err != nil {
		return 0, fmt.Errorf("end the pod's init, process %d: %w", pid, err)
	}
	_, err = syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	return status, os.NewSyscallError("wait4", err)
}

// Child is a process that init has started. Init continues it when it is stopped, until a moment after Runs.
type Child struct {
	*child.Process
	init   *Init
	number C.int32_t
}

// Runs says that the child has become its program, which a SIGSTOP stops as usual from a moment later on: the kernel
// may deliver one after the exec that an app has sent before it. It does not wait.
func (c *Child) Runs() {
	const moment = 100 * time.Millisecond
	time.AfterFunc(moment, func() {
		select {
		case <-c.Done(): // another child may have its number
		default:
			_ = c.init.say(C.INIT_RUNS, c.number) // an error is the pod's end
		}
	})
}

// Start has init fork a child with a plan (child.h), whose descriptors are the files, in the cgroup of version 2 if
// there is one. The files are the caller's to close. An error of the kernel is a *os.SyscallError. After another one a
// child may still begin: it is killed.
func (i *Init) Start(plan []byte, files []*os.File, cgroup *os.File) (*Child, error) {
	memory, err := memfd(plan)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	m := C.struct_init_message{kind: C.INIT_START}
	all := append(append(make([]*os.File, 0, len(files)+2), files...), memory)
	if cgroup != nil {
		all, m.in_cgroup = append(all, cgroup), 1
	}
	m.nfiles = C.uint32_t(len(all))
	answered := make(chan answer, 1)
	if err := i.ask(answered, &m, all); err != nil {
		return nil, fmt.Errorf("ask init: %w", err)
	}
	select {
	case result := <-answered:
		return result.child, result.err
	case <-i.gone:
		return nil, errors.New("init has ended")
	case <-time.After(limit):
		go i.killLate(answered)
		return nil, fmt.Errorf("init has not answered after %s", limit)
	}
}

// killLate kills the child of a start that nobody waits for any more.
func (i *Init) killLate(answered <-chan answer) {
	select {
	case late := <-answered:
		if late.child != nil {
			_ = late.child.Signal(unix.SIGKILL) // it may have ended
		}
	case <-i.gone:
	}
}

// Missing returns why init cannot start an app here, or nil: the kernel lacks the newest of the system calls that a
// child needs (Linux 5.12), or clone3(2), which a container's filter may deny.
func Missing() error {
	for _, number := range []uintptr{
		unix.SYS_CLONE3, unix.SYS_CLOSE_RANGE, unix.SYS_OPENAT2, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
		unix.SYS_MOUNT_SETATTR, unix.SYS_PIDFD_OPEN,
	} {
		// Each call is an error: of close_range(2) because the range ends before it begins.
		_, _, errno := unix.RawSyscall6(number, none, 0, 0, 0, 0, 0)
		if errno == unix.ENOSYS || errno == unix.EPERM {
			return errno
		}
	}
	return nil
}

const none = ^uintptr(0)
