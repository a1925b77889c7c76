package goinit

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nobody is the user and group of an init in the pod's own PID namespace.
const nobody = 65534

// supervisorLimit is how long init keeps the ready pipe for a supervisor that does not end.
const supervisorLimit = 5 * time.Second

// Live is the main function of init, which Begin has started. It returns when the supervisor has ended and the pod with
// it. In the host's PID namespace it calls killPod, which kills the pod's processes; in the pod's own the kernel does,
// when PID 1 ends.
//
// Apps of user 0 are in the same PID namespace. What they can do to init:
//   - signals: it ignores all, so that the kernel drops them when they are sent; SIGKILL and SIGSTOP of its own
//     namespace do not reach PID 1 (pid_namespaces(7));
//   - ptrace(2) and /proc/1: it is not dumpable, and has no privileges and no files that an app with CAP_SYS_PTRACE,
//     which may become this process, could want.
//
// In the host's PID namespace, where init has what it needs to kill, an app of user 0 can kill and trace any process of
// the host.
func Live(killPod func() error) error {
	runtime.LockOSThread() // the parent-death signal is this thread's
	ownPIDs := os.Getpid() == 1
	if err := confine(ownPIDs); err != nil {
		return fmt.Errorf("begin as the pod's init: %w", err)
	}
	_, err := unix.Write(begun, []byte{1})
	unix.Close(begun)
	if err != nil {
		return nil // the supervisor has ended
	}
	up := waitForOrder()
	if up {
		if ownPIDs {
			// Not before: the daemon must not see the ready pipe's end before the stager's.
			_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
		}
		unix.Close(ready)
		for waitForOrder() {
		}
	}
	if !ownPIDs {
		err = killPod()
	}
	if !up {
		waitForSupervisor()
	}
	return err
}

// waitForOrder returns false when the supervisor has ended.
func waitForOrder() bool {
	for {
		n, err := unix.Read(orders, make([]byte, 1))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

func waitForSupervisor() {
	deadline := time.Now().Add(supervisorLimit)
	for left := supervisorLimit; left > 0; left = time.Until(deadline) {
		end := []unix.PollFd{{Fd: stager, Events: unix.POLLIN}}
		if _, err := unix.Poll(end, int(left.Milliseconds())); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// confine gives up what init does not need. The user is changed last but for the signals: these calls are for all
// threads, which the Go runtime reaches by a signal.
func confine(ownPIDs bool) error {
	if ownPIDs {
		if err := leaveMounts(); err != nil {
			return err
		}
		err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody),
			syscall.Setresuid(nobody, nobody, nobody)) // without user 0 a process has no capabilities, and is not dumpable
		if err != nil {
			return fmt.Errorf("give up privileges: %w", err)
		}
	}
	ignoreAll()
	return nil
}

// leaveMounts has the pod's /proc as the root, and nothing else.
func leaveMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return pivot("/proc")
}

// ignoreAll ignores all signals. The kernel collects the children of a process that ignores SIGCHLD. signal.Ignore
// leaves the Go runtime's handlers of faults, which end the process for a signal that rt_sigqueueinfo(2) has sent; a
// true fault ends a process that ignores its signal.
func ignoreAll() {
	const last, maskSize, ignore = 64, 8, 1 // SIG_IGN
	action := [5]uintptr{ignore}            // the handler first, as the kernel has it (rt_sigaction(2))
	for s := range uintptr(last) {          // which fails for SIGKILL and SIGSTOP alone
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s+1, uintptr(unsafe.Pointer(&action)), 0, maskSize, 0, 0)
	}
}
