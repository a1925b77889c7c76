package goinit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/internal/thread"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// init's descriptors, beside stderr: a pipe whose first byte says that the pod is up, and whose end that the supervisor
// has ended; a pipe for a byte that says that init lives; the stager's pidfd; and the daemon's ready pipe, or any file
// if there is none.
const (
	orders = iota
	begun
	stderr
	stager
	ready
)

// endLimit is how long the supervisor waits for init's end: longer than init for the pod's.
const endLimit = 10 * time.Second

// Init is the pod's PID 1, or in the host's PID namespace a process in the pod's other namespaces. It implements
// boot.Init. Its methods may be called by several goroutines at once.
type Init struct {
	orders      *os.File      // from Begin on
	pid         int           // from Begin on
	namespaces  uintptr       // likewise, as in clone(2)
	up          atomic.Bool   // init does not have the ready pipe
	closing     atomic.Bool   // init's end is no loss
	ended, lost chan struct{} // closed when init has ended; lost only between Begin and Close
}

var _ boot.Init = (*Init)(nil)

// New returns an init that has not begun.
func New() *Init { return &Init{ended: make(chan struct{}), lost: make(chan struct{})} }

// Begin implements boot.Init. The program that is called again in the role must call Live.
func (i *Init) Begin(namespaces uintptr, readyPipe *os.File) error {
	if err := i.begin(namespaces, readyPipe); err != nil {
		return fmt.Errorf("make the pod's init: %w", err)
	}
	if readyPipe == nil {
		return i.Up()
	}
	return nil
}

func (i *Init) begin(namespaces uintptr, readyPipe *os.File) error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	pidfd := os.NewFile(uintptr(self), "supervisor")
	defer pidfd.Close()
	ordersRead, ordersWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ordersRead.Close()
	begunRead, begunWrite, err := os.Pipe()
	if err != nil {
		return errors.Join(err, ordersWrite.Close())
	}
	defer begunRead.Close()
	pid, err := i.start(&os.ProcAttr{
		Env: []string{names.RoleVariable + "=" + roleInit, "GOMAXPROCS=1"},
		Files: []*os.File{
			orders: ordersRead, begun: begunWrite, stderr: os.Stderr, stager: pidfd, ready: cmp.Or(readyPipe, pidfd),
		},
		Sys: &unix.SysProcAttr{Cloneflags: namespaces | unix.CLONE_NEWNS},
	})
	begunWrite.Close()
	if err != nil {
		return errors.Join(err, ordersWrite.Close())
	}
	i.orders, i.pid, i.namespaces = ordersWrite, pid, namespaces
	err = begunRead.SetReadDeadline(time.Now().Add(spec.StartLimit))
	if err == nil {
		_, err = begunRead.Read(make([]byte, 1))
	}
	if err != nil {
		// It has said why to stderr, and ends with the pipes if it has not ended.
		return fmt.Errorf("it does not begin: %w", err)
	}
	go func() {
		<-i.ended
		if !i.closing.Load() {
			close(i.lost)
		}
	}()
	return nil
}

// start starts init from a thread that is init's parent until its end: the kernel kills init when that thread ends
// (PR_SET_PDEATHSIG). The thread has no descriptors, and so nothing holds up its end. A process that is killed closes
// its descriptors first, and an app can hold that up: splice(2) into a pipe of the supervisor's locks the pipe for as
// long as the source, such as an idle terminal, has nothing.
func (i *Init) start(attr *os.ProcAttr) (pid int, err error) {
	started := make(chan error, 1)
	thread.Go(func() {
		p, err := os.StartProcess("/proc/self/exe", os.Args[:1], attr)
		if err != nil {
			started <- err
			return
		}
		pid = p.Pid
		_ = p.Release() // which closes a descriptor
		started <- nil
		_ = unix.CloseRange(0, math.MaxInt32, unix.CLOSE_RANGE_UNSHARE) // Linux 5.9
		// Nothing collects init: its number is no other process's as long as the supervisor lives.
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
		close(i.ended)
	})
	err = <-started
	return pid, err
}

// PID implements boot.Init.
func (i *Init) PID() int { return i.pid }

// Namespace returns the path of one of init's namespaces, by its name in /proc/PID/ns, or "" if it is the
// supervisor's own. It is init's as long as the supervisor lives.
func (i *Init) Namespace(name string) string {
	flags := map[string]uintptr{"pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS}
	if i.namespaces&flags[name] == 0 {
		return ""
	}
	return "/proc/" + strconv.Itoa(i.pid) + "/ns/" + name
}

// In implements boot.Init.
func (i *Init) In(do func() error) error {
	return thread.In([]string{i.Namespace("ipc"), i.Namespace("uts")}, do)
}

// Up implements boot.Init.
func (i *Init) Up() error {
	i.up.Store(true)
	_, err := i.orders.Write([]byte{1})
	return err
}

// Lost implements boot.Init.
func (i *Init) Lost() <-chan struct{} { return i.lost }

// Close implements boot.Init. Where init has the ready pipe, it ends after this process: the daemon must not see that
// pipe's end first.
func (i *Init) Close() error {
	if !i.up.Load() {
		return nil
	}
	i.closing.Store(true)
	if err := i.orders.Close(); err != nil {
		return err
	}
	select {
	case <-i.ended:
		return nil
	case <-time.After(endLimit):
		return fmt.Errorf("the pod's init %d does not end: a process of the pod cannot be killed", i.pid)
	}
}
