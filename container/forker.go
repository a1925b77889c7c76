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

	"kurma.io/stager/internal/thread"
)

// forker is the thread that forks the children of the direct runtime, see forker.c.
type forker struct{ thread *C.struct_forker }

// forking is held from leaveMemoryOut to the fork. The memory is the process's, a forker the runtime's.
var forking sync.Mutex //nolint:gochecknoglobals // see above

// newForker starts the thread in a mount namespace, that of bareMounts.
func newForker(mounts *os.File) (*forker, error) {
	t, err := C.forker_new(C.int(mounts.Fd()))
	if t == nil {
		return nil, fmt.Errorf("start the thread that forks: %w", err)
	}
	return &forker{t}, nil
}

// bareMounts makes a mount namespace with /proc alone, and a root for it. The caller closes the file.
func bareMounts() (namespace *os.File, err error) {
	err = thread.New(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return os.NewSyscallError("mount", err)
		}
		if err := enterBareRoot(); err != nil {
			return err
		}
		namespace, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	return namespace, err
}

func enterBareRoot() error {
	proc, err := cloneTree("/proc", "proc", 0)
	if err != nil {
		return err
	}
	defer proc.file.Close()
	root, err := newFileSystem("tmpfs", "tmpfs", "", 0)
	if err != nil {
		return err
	}
	defer root.Close()
	fd := int(root.Fd())
	const empty = unix.MOVE_MOUNT_F_EMPTY_PATH
	for _, step := range []struct {
		call string
		do   func() error
	}{
		{"mkdirat", func() error { return unix.Mkdirat(fd, "proc", 0o555) }},
		{"move_mount", func() error { return unix.MoveMount(fd, "", unix.AT_FDCWD, "/", empty) }},
		{"fchdir", func() error { return unix.Fchdir(fd) }},
		{"move_mount", func() error { return unix.MoveMount(int(proc.file.Fd()), "", unix.AT_FDCWD, "proc", empty) }},
		// The old root lies on top of the new one then (pivot_root(2), NOTES).
		{"pivot_root", func() error { return unix.PivotRoot(".", ".") }},
		{"umount", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"chdir", func() error { return unix.Chdir("/") }},
	} {
		if err := step.do(); err != nil {
			return os.NewSyscallError(step.call, err)
		}
	}
	return nil
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
