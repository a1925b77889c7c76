package fuseoverlayfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	devicePath  = "/dev/fuse"
	deviceMajor = 10
	deviceMinor = 229 // Documentation/admin-guide/devices.txt
)

// openDevice opens /dev/fuse, or where the daemon has given none, a device node of
// its own, which no other process can see.
func openDevice() (*os.File, error) {
	f, err := os.OpenFile(devicePath, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return openOwnDevice()
	}
	return f, err
}

// openOwnDevice makes the node on a tmpfs that is attached nowhere and vanishes with the
// function.
func openOwnDevice() (*os.File, error) {
	tree, err := mountDetached("tmpfs", nil)
	if err != nil {
		return nil, err
	}
	defer unix.Close(tree)
	if err := unix.Mknodat(tree, "fuse", unix.S_IFCHR|0o600, int(unix.Mkdev(deviceMajor, deviceMinor))); err != nil {
		return nil, fmt.Errorf("make device node of %s: %w", devicePath, err)
	}
	fd, err := unix.Openat(tree, "fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open own device node of %s: %w", devicePath, err)
	}
	return os.NewFile(uintptr(fd), devicePath), nil
}

// newMount returns a descriptor of a FUSE file system that is attached nowhere and
// that the process which reads device will serve. Set-user-ID files and device nodes have
// their effect in it. The kernel checks permissions, as on any other file system.
func newMount(device *os.File) (int, error) {
	return mountDetached("fuse", [][2]string{
		{"source", "fuse-overlayfs"},
		{"subtype", "fuse-overlayfs"},
		{"fd", strconv.Itoa(int(device.Fd()))},
		{"rootmode", "40000"}, // octal: a directory
		{"user_id", "0"},
		{"group_id", "0"},
		{"allow_other", ""},
		{"default_permissions", ""},
	})
}

// mountDetached returns a descriptor of a new file system of the type kind, with options, ""
// being the value of a flag. It is attached nowhere, and vanishes when the descriptor
// is closed unless move_mount(2) has attached it.
func mountDetached(kind string, options [][2]string) (int, error) {
	context, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open file system %s: %w", kind, err)
	}
	defer unix.Close(context)
	for _, o := range options {
		if o[1] == "" {
			err = unix.FsconfigSetFlag(context, o[0])
		} else {
			err = unix.FsconfigSetString(context, o[0], o[1])
		}
		if err != nil {
			return -1, fmt.Errorf("set option %s of file system %s: %w", o[0], kind, kernelSays(context, err))
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, fmt.Errorf("create file system %s: %w", kind, kernelSays(context, err))
	}
	tree, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mount file system %s: %w", kind, err)
	}
	return tree, nil
}

// kernelSays adds the kernel's own message about err, if there is one.
func kernelSays(context int, err error) error {
	buf := make([]byte, 1024)
	n, readErr := unix.Read(context, buf)
	if readErr != nil || n == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.TrimSpace(string(buf[:n])))
}
