package goinit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
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
	orders      chan chan error // each asks for a byte in the pipe of that name, whose end is the channel's
	pid         int             // from Begin on
	namespaces  uintptr         // likewise, as in clone(2)
	up          atomic.Bool     // init does not have the ready pipe
	closing     atomic.Bool     // init's end is no loss
	ended, lost chan struct{}   // closed when init has ended; lost only between Begin and Close
}

var _ boot.Init = (*Init)(nil)

// New returns an init that has not begun.
func New() *Init {
	return &Init{orders: make(chan chan error), ended: make(chan struct{}), lost: make(chan struct{})}
}

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
	defer ordersWrite.Close() // init's parent has its own
	begunRead, begunWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	defer begunRead.Close()
	pid, err := i.start(int(ordersWrite.Fd()), &os.ProcAttr{
		Env: []string{names.RoleVariable + "=" + roleInit, "GOMAXPROCS=1"},
		Files: []*os.File{
			orders: ordersRead, begun: begunWrite, stderr: os.Stderr, stager: pidfd, ready: cmp.Or(readyPipe, pidfd),
		},
		Sys: &unix.SysProcAttr{Cloneflags: namespaces | unix.CLONE_NEWNS},
	})
	begunWrite.Close()
	if err != nil {
		return err
	}
	i.pid, i.namespaces = pid, namespaces
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
// (PR_SET_PDEATHSIG). The thread alone has the writing end of init's orders, the descriptor toInit: nothing holds up
// the thread's end, nor that of the orders, by which init learns of the supervisor's end in the host's PID namespace.
func (i *Init) start(toInit int, attr *os.ProcAttr) (pid int, err error) {
	started := make(chan error, 1)
	thread.Go(func() {
		p, err := os.StartProcess("/proc/self/exe", os.Args[:1], attr)
		if err == nil {
			pid = p.Pid
			_ = p.Release() // which closes a descriptor
			err = thread.CloseFiles(toInit)
		}
		started <- err
		if err != nil {
			return
		}
		for answer := range i.orders {
			_, err := unix.Write(toInit, []byte{1})
			answer <- os.NewSyscallError("write", err)
		}
		_ = unix.Close(toInit) // a pipe
		<-i.ended
	})
	if err = <-started; err != nil {
		return 0, err
	}
	go func() {
		// Nothing collects init: its number is no other process's as long as the supervisor lives.
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
		close(i.ended)
	}()
	return pid, nil
}

// PID implements boot.Init.
func (i *Init) PID() int { return i.pid }

// Namespace returns the path of one of init's namespaces, by its name in /proc/PID/ns, or "" if it is the
// supervisor's own. It is init's as long as the supervisor lives.
func (i *Init) Namespace(name string) string {
	return thread.NamespaceOf(i.pid, i.namespaces, name)
}

// In implements boot.Init.
func (i *Init) In(do func() error) error {
	return thread.In([]string{i.Namespace("ipc"), i.Namespace("uts")}, do)
}

// Up implements boot.Init.
func (i *Init) Up() error {
	i.up.Store(true)
	answer := make(chan error, 1)
	i.orders <- answer
	return <-answer
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
	close(i.orders)
	select {
	case <-i.ended:
		return nil
	case <-time.After(endLimit):
		return fmt.Errorf("the pod's init %d does not end: a process of the pod cannot be killed", i.pid)
	}
}
