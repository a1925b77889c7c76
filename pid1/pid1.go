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
	"strconv"
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
	pid        int     // from Begin on
	namespaces uintptr // likewise, as in clone(2)

	sending  sync.Mutex  // held while a start is sent, so that the answers come in the order of asked
	asked    chan *asked // the starts that init has not answered
	running  sync.Mutex
	children map[int32]*Child // guarded by running; by number in init's PID namespace
}

// asked is a start that is under way.
type asked struct{ answered chan answer }

type answer struct {
	child *Child
	err   error
}

// maxAsked is how many starts may be under way at once: more than a supervisor has.
const maxAsked = 1024

// init keeps the supervisor's main goroutine on the process's first thread, which it is certain to be on
// only here. A runtime has threads join a container's mount namespace and end there; the
// first thread cannot end, and would stay as what /proc/PID/root and /proc/PID/ns show of the supervisor.
func init() { //nolint:gochecknoinits // see above
	if C.first_channel() >= 0 {
		runtime.LockOSThread()
	}
}

// Take returns the init that will be, if this process is a stager that a daemon has started, else nil. It is called
// once.
func Take() (*Init, error) {
	fd := C.first_channel()
	if fd < 0 {
		return nil, nil //nolint:nilnil // no init is an answer here
	}
	return open(fd)
}

// New returns a further init that will be. It forks this program with all of its memory: it is for programs that are no
// stager, such as tests.
func New() (*Init, error) {
	fd, err := C.first_start()
	if fd < 0 {
		return nil, fmt.Errorf("fork init: %w", err)
	}
	return open(fd)
}

// open takes the supervisor's end of a channel.
func open(fd C.int) (*Init, error) {
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
		channel: channel, begun: make(chan C.struct_init_message, 2), gone: make(chan struct{}), lost: make(chan struct{}),
		asked: make(chan *asked, maxAsked), children: make(map[int32]*Child),
	}
	go i.listen()
	return i, nil
}

// Begin makes init in new namespaces, as in clone(2), and passes it the ready pipe, nil for none. It is called once.
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
	for isReady := false; !isReady || i.pid == 0; {
		m, open := <-i.begun
		switch {
		case !open:
			return errors.New("make the pod's init: it has ended")
		case m.status == 0:
			isReady = true
			continue
		}
		collect(int(m.status)) // it ends now
		if m.error != 0 {
			return fmt.Errorf("make the pod's init: %w", os.NewSyscallError("clone", syscall.Errno(m.error)))
		}
		i.pid, i.namespaces = int(m.number), namespaces
	}
	return nil
}

// PID is init's number in the supervisor's PID namespace.
func (i *Init) PID() int { return i.pid }

// Namespace returns the path of one of init's namespaces, by its name in /proc/PID/ns, or "" if it is the
// supervisor's own. It is init's as long as the supervisor lives, which alone collects init.
func (i *Init) Namespace(name string) string {
	flags := map[string]uintptr{"pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS}
	if i.namespaces&flags[name] == 0 {
		return ""
	}
	return "/proc/" + strconv.Itoa(i.pid) + "/ns/" + name
}

// In calls do on a thread in init's IPC and UTS namespaces.
func (i *Init) In(do func() error) error {
	return thread.New(func() error {
		for _, name := range []string{"ipc", "uts"} {
			path := i.Namespace(name)
			if path == "" {
				continue
			}
			namespace, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("open the pod's namespace: %w", err)
			}
			err = unix.Setns(int(namespace.Fd()), 0)
			namespace.Close()
			if err != nil {
				return os.NewSyscallError("setns", err)
			}
		}
		return do()
	})
}

// Up has init close its copy of the ready pipe.
func (i *Init) Up() error {
	return i.send(&C.struct_init_message{kind: C.INIT_UP}, nil)
}

// Lost is closed when init has ended, or cannot be reached, before Close. Its children have ended then, but for those
// in the host's PID namespace.
func (i *Init) Lost() <-chan struct{} { return i.lost }

// Close ends init, and with it what is left of the pod.
func (i *Init) Close() error {
	if i.pid == 0 {
		return nil
	}
	i.closing.Store(true)
	err := i.Up() // or init would wait for this process's end
	i.channel.Close()
	collect(i.pid)
	return err
}

// collect waits for a child's end.
func collect(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// Child is a process that init has started. Init continues it when it is stopped, until a moment after Runs.
type Child struct {
	*child.Process
	init   *Init
	number C.int32_t
}

// Runs says that the child has become its program. A SIGSTOP that an app has sent before the exec may stop the program.
func (c *Child) Runs() {
	const moment = 100 * time.Millisecond
	time.AfterFunc(moment, func() {
		select {
		case <-c.Done(): // another child may have its number
		default:
			_ = c.init.send(&C.struct_init_message{kind: C.INIT_RUNS, number: c.number}, nil) // an error is the pod's end
		}
	})
}

// Start has init fork a child with a plan (child.h), whose descriptors are the files, in the cgroup of version 2 if
// there is one. An error of the kernel is a *os.SyscallError.
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
	a := &asked{make(chan answer, 1)}
	if err := i.ask(a, &m, all); err != nil {
		return nil, fmt.Errorf("ask init: %w", err)
	}
	select {
	case result := <-a.answered:
		return result.child, result.err
	case <-i.gone:
		return nil, errors.New("init has ended")
	}
}

func (i *Init) ask(a *asked, m *C.struct_init_message, files []*os.File) error {
	i.sending.Lock()
	defer i.sending.Unlock()
	i.asked <- a
	for len(files) > 0 {
		n := min(len(files), C.INIT_PACKET_FILES)
		if err := i.send(m, files[:n]); err != nil {
			return err
		}
		files = files[n:]
		m.kind = C.INIT_FILES
	}
	return nil
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
