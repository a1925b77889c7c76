package container

// #include "direct.h"
// #include "forker.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forker is the thread that forks the children of the direct runtime, see forker.c.
type forker struct{ thread *C.struct_forker }

// forking is held from leaveMemoryOut to the fork. The memory is the process's, a forker the runtime's.
var forking sync.Mutex //nolint:gochecknoglobals // see above

func newForker() (*forker, error) {
	thread, err := C.forker_new()
	if thread == nil {
		return nil, fmt.Errorf("start the thread that forks: %w", err)
	}
	return &forker{thread}, nil
}

// close ends the thread. Its children live on.
func (f *forker) close() { C.forker_stop(f.thread) }

// start forks a child, into the cgroup of version 2 if there is one.
func (f *forker) start(child *forked, unified *os.File) (*os.Process, error) {
	plan, err := child.encode()
	if err != nil {
		return nil, err
	}
	cgroup := C.int(-1)
	if unified != nil {
		cgroup = C.int(unified.Fd())
	}
	forking.Lock()
	defer forking.Unlock()
	leaveMemoryOut(uint64(C.forker_stack(f.thread)))
	memory, err := unix.Mmap(-1, 0, len(plan), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	copy(memory, plan) // the child does not get the heap
	var call *C.char
	pid := C.forker_fork(f.thread, unsafe.Pointer(&memory[0]), cgroup, &call)
	runtime.KeepAlive(child.files)
	if pid < 0 {
		return nil, os.NewSyscallError(C.GoString(call), syscall.Errno(-pid))
	}
	return os.FindProcess(int(pid))
}

// missingForDirect returns why the direct runtime cannot start processes here, or nil.
func missingForDirect() error {
	if errno := C.forker_missing(); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
