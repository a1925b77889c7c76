// Package waiter is the stager's first process, in C, and the supervisor's side of the channel
// to it. A program that imports the package has the waiter: a constructor of the C library
// (waiter.c) runs before the program's Go runtime, and if the program is called by the name
// names.Program, without arguments, it becomes the waiter and starts the same program
// again as the supervisor, for which TakeLine returns a Line. waiter.h draws the protocol.
//
// The waiter takes half a megabyte, and starts helper processes that no app can reach (package
// helper). Package pid1 does the same in Go alone, without such helpers, for stagers without
// cgo. A program imports one of the two.
package waiter

// #cgo CFLAGS: -Wall -Wextra -Werror -O2 -I${SRCDIR}/../internal/c
// #include "waiter.h"
import "C"

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	_ "kurma.io/stager/internal/c" // the C files include its headers
	"kurma.io/stager/names"
)

// Line is the supervisor's side of its channel to the waiter. It implements boot.Waiter. Its
// methods may be called by several goroutines at once.
type Line struct {
	channel    *net.UnixConn
	namespaces uintptr       // made by the waiter, as in clone(2)
	settled    chan struct{} // closed by Settle
	mounts     *os.File      // the supervisor's mount namespace, for helpers
}

var _ boot.Waiter = (*Line)(nil)

// init keeps the supervisor's main goroutine on the process's first thread, which it is certain to be on
// only here. A runtime has threads join a container's mount namespace and end there; the
// first thread cannot end, and would stay as what /proc/PID/root and /proc/PID/ns show of the supervisor.
func init() { //nolint:gochecknoinits // see above
	if os.Getenv(names.SupervisorVariable) != "" {
		runtime.LockOSThread()
	}
}

// TakeLine returns the line if this process is the supervisor that the waiter has started, else nil. It is called
// once, by the main goroutine, after boot.TakeDescriptors: it opens descriptors. From then on no signal that another
// process sends is taken for a fault of this program (faults.c); supervisor.IgnoreSignals must come later.
func TakeLine() (*Line, error) {
	mark := os.Getenv(names.SupervisorVariable)
	if mark == "" {
		return nil, nil //nolint:nilnil // no line is an answer here
	}
	if _, err := C.faults_guard(); err != nil {
		return nil, fmt.Errorf("guard signals of faults: %w", err)
	}
	fd, l := 0, &Line{settled: make(chan struct{})}
	if _, err := fmt.Sscanf(mark, "%d,%d", &fd, &l.namespaces); err != nil {
		return nil, fmt.Errorf("%s: %w", names.SupervisorVariable, err)
	}
	file := os.NewFile(uintptr(fd), "channel")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", names.SupervisorVariable, err)
	}
	var ok bool
	if l.channel, ok = conn.(*net.UnixConn); !ok {
		return nil, fmt.Errorf("%s: descriptor %d is not a Unix socket", names.SupervisorVariable, fd)
	}
	if l.mounts, err = os.Open("/proc/self/ns/mnt"); err != nil {
		return nil, fmt.Errorf("open own mount namespace: %w", err)
	}
	return l, os.Unsetenv(names.SupervisorVariable)
}

// Settle implements boot.Waiter. Helpers can start when it has returned nil. From then on a supervisor in a PID
// namespace of its own and the waiter end with each other, whether Watch is called or not.
func (l *Line) Settle(wanted uintptr, ready *os.File) error {
	request := C.struct_waiter_request{kind: C.WAITER_SETTLE, namespaces: C.uint32_t(wanted), ready: -1}
	if ready != nil {
		request.ready = C.int32_t(ready.Fd())
	}
	if err := l.ask(&request); err != nil {
		return err
	}
	if wanted != l.namespaces {
		return boot.ErrOtherNamespaces
	}
	if wanted&unix.CLONE_NEWPID != 0 {
		if err := l.tie(); err != nil {
			return err
		}
	}
	close(l.settled)
	return nil
}

// Up implements boot.Waiter.
func (l *Line) Up() error { return l.ask(&C.struct_waiter_request{kind: C.WAITER_UP}) }

// ask sends a request, with files.
func (l *Line) ask(request *C.struct_waiter_request, files ...*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := l.channel.WriteMsgUnix(bytesOf(request), rights, nil); err != nil {
		return fmt.Errorf("ask the waiter: %w", err)
	}
	return nil
}

// Settled is closed when Settle has returned nil.
func (l *Line) Settled() <-chan struct{} { return l.settled }

// Watch implements boot.Waiter. The daemon asks with SIGTERM, SIGINT or SIGQUIT; an app cannot, if the supervisor has
// called supervisor.IgnoreSignals. Watch does not return.
func (l *Line) Watch(stop, lost func()) {
	// The channel's end, or an error, means that the waiter is gone.
	for order := C.uint32_t(0); readStruct(l.channel, &order) == nil; {
		if order == C.WAITER_STOP {
			stop()
		}
	}
	if l.namespaces&unix.CLONE_NEWPID == 0 {
		stop()
		lost()
	} else {
		_ = unix.Kill(-1, unix.SIGKILL) // before this process's end, as lifeline.c does, which may not have done so yet
	}
	os.Exit(1)
}

// bytesOf returns the memory of a C structure, which has no pointers in it.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// readStruct reads a C structure, which has no pointers in it. The error is io.EOF
// when there is nothing to read.
func readStruct[T any](r io.Reader, v *T) error {
	_, err := io.ReadFull(r, bytesOf(v))
	return err
}
