package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/spec"
)

// makeUserNamespace makes the pod's user namespace, if it has one of its own. It belongs to its user 0: where the
// kernel counts what a user has, as for inotify(7), apps take nothing from the stager's user.
func makeUserNamespace(_ context.Context, p *Pod) error {
	users := p.Plan.UserNamespace
	if users == nil {
		return nil
	}
	if err := thread.As(users.HostID, func() error { return keepUserNamespace(users) }); err != nil {
		return fmt.Errorf("make user namespace: %w", err)
	}
	return nil
}

// keepUserNamespace makes the namespace with a process that is stopped before its first instruction (ptrace(2)),
// because a process of several threads cannot make one for itself. The file at users.Path keeps the namespace. No app
// has been started yet: a runtime may keep the supervisor's memory from the forks that follow.
func keepUserNamespace(users *spec.UserNamespace) error {
	if err := os.WriteFile(users.Path, nil, 0o600); err != nil {
		return err
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(users.HostID), Size: int(users.Size)}}
	child, err := os.StartProcess("/proc/self/exe", []string{"user namespace"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true, Ptrace: true,
	}})
	if err != nil {
		return err
	}
	file := fmt.Sprintf("/proc/%d/ns/user", child.Pid)
	if err = unix.Mount(file, users.Path, "", unix.MS_BIND, ""); err != nil {
		err = fmt.Errorf("bind %s: %w", file, err)
	}
	killErr := child.Kill()
	_, waitErr := child.Wait()
	return errors.Join(err, killErr, waitErr)
}

// asOwner runs do as user 0 of the pod's user namespace, to whom the files that do makes then belong.
func (p *Pod) asOwner(do func() error) error {
	if p.Plan.UserNamespace == nil {
		return do()
	}
	return thread.As(p.Plan.UserNamespace.HostID, do)
}

// mapOwners has the supervisor see folders with the owners of the pod's user namespace.
func (p *Pod) mapOwners(folders ...string) error {
	for _, folder := range folders {
		if p.Plan.UserNamespace == nil {
			return nil
		}
		tree, err := withOwners(folder, p.Plan.UserNamespace)
		if err == nil {
			err = unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, folder, unix.MOVE_MOUNT_F_EMPTY_PATH)
			tree.Close()
		}
		if err != nil {
			return fmt.Errorf("map the owners of %s to the pod's user namespace: %w", folder, err)
		}
	}
	return nil
}

// withOwners returns a copy of a folder's mounts, attached nowhere, in which a file's owner N is that of the user
// namespace.
func withOwners(folder string, users *spec.UserNamespace) (*os.File, error) {
	namespace, err := os.Open(users.Path)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, folder, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, os.NewSyscallError("open_tree", err)
	}
	tree := os.NewFile(uintptr(fd), folder)
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attributes); err != nil {
		tree.Close()
		return nil, fmt.Errorf("the kernel or the file system cannot: %w", os.NewSyscallError("mount_setattr", err))
	}
	return tree, nil
}
