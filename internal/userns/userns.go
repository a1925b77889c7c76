// Package userns makes user namespaces (user_namespaces(7)).
package userns

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
)

// New makes a user namespace, in which the users and groups 0 to size-1 are hostID, hostID+1 and so on outside, and in
// it the namespaces of flags (clone(2)). Keep is called with the folder of their files, like /proc/PID/ns. A namespace
// that it has not kept ends with it. All belong to the user hostID: where the kernel counts what a user has, as for
// inotify(7), processes in them take nothing from the caller's user.
//
// The namespaces are those of a process that is stopped before its first instruction (ptrace(2)), because a process of
// several threads cannot make a user namespace for itself. The process is a fork with the memory of the caller's. If
// the caller is killed meanwhile, the process ends by the signal that has stopped it, unless another thread of the
// caller's waits for any child at the same time, which must not be.
func New(hostID, size uint32, flags uintptr, keep func(folder string) error) error {
	return thread.As(hostID, func() error {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(hostID), Size: int(size)}}
		attr := &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER | flags, Ptrace: true,
			UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		}
		// Should it run after all, it prints the version.
		argv := []string{"stopped", "--version"}
		child, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{Env: []string{}, Sys: attr})
		if err != nil {
			return fmt.Errorf("make user namespace: %w", err)
		}
		err = keep(fmt.Sprintf("/proc/%d/ns", child.Pid))
		killErr := child.Kill()
		_, waitErr := child.Wait()
		return errors.Join(err, killErr, waitErr)
	})
}

// MapsTmpfs reports whether the kernel maps the owners of a tmpfs (MOUNT_ATTR_IDMAP in mount_setattr(2)), as that of a
// pod's secrets: since Linux 6.3.
func MapsTmpfs() bool {
	var u unix.Utsname
	var major, minor int
	err := unix.Uname(&u)
	_, scanErr := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err == nil && scanErr == nil && (major > 6 || major == 6 && minor >= 3)
}
