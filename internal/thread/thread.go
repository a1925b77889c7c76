// Package thread runs each call on its own thread, so that the call's changes to its thread end with the thread.
package thread

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// New runs do on a new thread, which ends afterwards. The thread has the effective user and group of the caller's, and
// its capabilities. It is never the process's first thread: that cannot end, and /proc/PID/cwd shows its directory.
func New(do func() error) error {
	return as(unix.Geteuid(), unix.Getegid(), do) // of this thread alone, see As
}

// As runs do on a new thread with the effective user and group id: files that it makes belong to them, also where the
// kernel has no number for the process's own (an idmapped mount). The thread keeps the process's capabilities.
func As(id uint32, do func() error) error { return as(int(id), int(id), do) }

func as(uid, gid int, do func() error) error {
	result := make(chan error, 1)
	Go(func() {
		err := become(uid, gid)
		if err == nil {
			err = do()
		}
		result <- err
	})
	return <-result
}

// In runs do on a new thread, as New does, in the namespaces at these paths (setns(2)); "" is the caller's own. A PID
// namespace is that of the processes that the thread starts, a mount namespace is refused.
func In(namespaces []string, do func() error) error {
	return New(func() error {
		for _, path := range namespaces {
			if err := enter(path); err != nil {
				return fmt.Errorf("enter namespace: %w", err)
			}
		}
		return do()
	})
}

// NamespaceOf returns the path of the namespace with this name in /proc/PID/ns ("pid", "ipc" or "uts"), or "" if flags,
// the clone(2) flags with which the process was made, have no new one of this kind.
func NamespaceOf(pid int, flags uintptr, name string) string {
	kinds := map[string]uintptr{"pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS}
	if flags&kinds[name] == 0 {
		return ""
	}
	return "/proc/" + strconv.Itoa(pid) + "/ns/" + name
}

func enter(path string) error {
	if path == "" {
		return nil
	}
	namespace, err := os.Open(path)
	if err != nil {
		return err
	}
	defer namespace.Close()
	return os.NewSyscallError("setns", unix.Setns(int(namespace.Fd()), 0))
}

// Go runs do in the background on a new thread, which ends with do: do may move it to other namespaces and need not
// move it back. As with New, it is never the process's first thread, which /proc/self also stands for. It has the user
// and group of the process, whatever the caller's are.
func Go(do func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			do() // still locked: the thread ends with the goroutine
			return
		}
		// While this goroutine holds the first thread, the next one cannot get it.
		done := make(chan struct{})
		Go(func() {
			defer close(done)
			do()
		})
		<-done
		runtime.UnlockOSThread()
	}()
}

// become sets the effective IDs of the calling thread; the C library's functions would set those of all. The kernel
// takes the effective capabilities from a user that is not 0, so become sets them again (capabilities(7)).
func become(uid, gid int) error {
	if unix.Geteuid() == uid && unix.Getegid() == gid {
		return nil
	}
	const unchanged = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, unchanged, uintptr(gid), unchanged); errno != 0 {
		return os.NewSyscallError("setresgid", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(uid), unchanged); errno != 0 {
		return os.NewSyscallError("setresuid", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	for i := range sets {
		sets[i].Effective = sets[i].Permitted
	}
	return os.NewSyscallError("capset", unix.Capset(&header, &sets[0]))
}
