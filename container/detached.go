package container

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// detached makes a mount that is detached from every mount namespace. A bind shows the owners of the user namespace
// users, nil for the caller's, unless it is a device node.
func detached(m *configs.Mount, users *os.File) (*os.File, error) {
	// They have the numbers of MS_RDONLY, MS_NOSUID and so on.
	const restricting = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID |
		unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	attributes := unix.MountAttr{Attr_set: uint64(m.Flags) & restricting, Propagation: unix.MS_SLAVE}
	if m.Flags&unix.MS_BIND == 0 {
		if m.Flags&unix.MS_STRICTATIME != 0 {
			attributes.Attr_set |= unix.MOUNT_ATTR_STRICTATIME
		}
		return newFileSystem(m.Device, m.Source, m.Data, int(attributes.Attr_set))
	}
	if m.RecAttr != nil {
		attributes.Attr_set |= m.RecAttr.Attr_set
	}
	if m.PropagationFlags != nil {
		attributes.Propagation = uint64(m.PropagationFlags[0] &^ unix.MS_REC)
	}
	var recursive uint
	if m.Flags&unix.MS_REC != 0 {
		recursive = unix.AT_RECURSIVE
	}
	if users != nil {
		return openMapped(m, recursive, attributes, users)
	}
	t, err := openTree(m.Source, m.Destination, recursive, attributes)
	return t.file, err
}

// openMapped is openTree for a source whose files get the owners of a user namespace. A socket keeps its own where the
// file system cannot map them, as a tmpfs before Linux 6.3: who may connect is for its mode to say.
func openMapped(m *configs.Mount, recursive uint, attributes unix.MountAttr, users *os.File) (*os.File, error) {
	var kind os.FileMode
	if info, err := os.Stat(m.Source); err == nil {
		kind = info.Mode().Type()
	}
	plain := attributes
	if kind&os.ModeDevice == 0 {
		attributes.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attributes.Userns_fd = uint64(users.Fd())
	}
	t, err := openTree(m.Source, m.Destination, recursive, attributes)
	var refused *os.PathError
	if errors.As(err, &refused) && refused.Op == "mount_setattr" {
		if kind == os.ModeSocket {
			t, err = openTree(m.Source, m.Destination, recursive, plain)
		} else {
			err = fmt.Errorf("the file system cannot map its owners to the pod's user namespace: %w", err)
		}
	}
	return t.file, err
}

// newFileSystem returns a new file system's detached mount (fsopen(2)).
func newFileSystem(kind, source, options string, attributes int) (*os.File, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	set := []string{"source=" + source}
	if options != "" {
		set = append(set, strings.Split(options, ",")...)
	}
	for _, option := range set {
		if name, value, found := strings.Cut(option, "="); found {
			err = unix.FsconfigSetString(fs, name, value)
		} else {
			err = unix.FsconfigSetFlag(fs, name)
		}
		if err != nil {
			return nil, fmt.Errorf("option %s: %w", option, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(fd), kind), nil
}

// makeWritable makes a mount and its file system writable.
func makeWritable(mount *os.File) error {
	fd := int(mount.Fd())
	writable := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &writable); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	fs, err := unix.Fspick(fd, "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("fspick", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetFlag(fs, "rw"); err != nil {
		return os.NewSyscallError("fsconfig", err)
	}
	return os.NewSyscallError("fsconfig", unix.FsconfigReconfigure(fs))
}
