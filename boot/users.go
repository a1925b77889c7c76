package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/internal/userns"
	"kurma.io/stager/spec"
)

// makeUserNamespace makes the pod's own user namespace, if any, or takes the owner of the network namespace that the
// daemon has made for the pod: only there, apps have powers over the network (user_namespaces(7)). The file at
// users.Path keeps it.
func makeUserNamespace(_ context.Context, p *Pod) error {
	users := p.Plan.UserNamespace
	if users == nil {
		return nil
	}
	if err := os.WriteFile(users.Path, nil, 0o600); err != nil {
		return fmt.Errorf("keep user namespace: %w", err)
	}
	keep := func(file string) error {
		if err := unix.Mount(file, users.Path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep user namespace: %w", err)
		}
		return nil
	}
	owner, err := ownerOfNetwork()
	if err != nil {
		return fmt.Errorf("find the user namespace of the pod's network: %w", err)
	}
	if owner != nil {
		defer owner.Close()
		if id, err := unix.IoctlGetUint32(int(owner.Fd()), unix.NS_GET_OWNER_UID); err != nil || id != users.HostID {
			return fmt.Errorf("the pod's network is in a user namespace of user %d, and stagerConfig.userNamespace has %d: %w",
				id, users.HostID, cmp.Or(err, error(unix.EINVAL)))
		}
		return keep(fmt.Sprintf("/proc/self/fd/%d", owner.Fd()))
	}
	return userns.New(users.HostID, users.Size, 0, func(made string) error { return keep(filepath.Join(made, "user")) })
}

// ownerOfNetwork returns the user namespace that owns the network namespace (ioctl_ns(2)), nil for the stager's own
// user namespace and its ancestors.
func ownerOfNetwork() (*os.File, error) {
	network, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer network.Close()
	fd, err := unix.IoctlRetInt(int(network.Fd()), unix.NS_GET_USERNS)
	if errors.Is(err, unix.EPERM) {
		return nil, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("ioctl NS_GET_USERNS", err)
	}
	owner := os.NewFile(uintptr(fd), "user namespace")
	found, err1 := owner.Stat()
	own, err2 := os.Stat("/proc/self/ns/user")
	if err := errors.Join(err1, err2); err != nil || os.SameFile(found, own) {
		owner.Close()
		return nil, err
	}
	return owner, nil
}

// AsOwner runs do as user 0 of the pod's user namespace, on a thread of its own: files that do makes in the apps' roots
// belong to user 0 of the apps. Without a user namespace it calls do.
func (p *Pod) AsOwner(do func() error) error {
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
