package identity

import (
	"errors"
	"fmt"
	"os"
	"slices"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// errNotRegular is the error of OpenRegular for what is not a regular file on a file system
// that stores files.
var errNotRegular = errors.New("not a regular file")

// kernelFileSystems have files that call themselves regular, although the kernel makes their content
// up. A read of one can wait (trace_pipe), take something away from its other readers (kmsg) or
// act on a device.
var kernelFileSystems = []int64{ //nolint:gochecknoglobals // a table that is only read
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
	unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
	unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.RDTGROUP_SUPER_MAGIC,
	unix.BINFMTFS_MAGIC, configfsMagic,
}

const configfsMagic = 0x62656570 // CONFIGFS_MAGIC in fs/configfs/mount.c

// OpenRegular opens a file of a container for reading, as a process in the container finds it: path
// is resolved within root and cannot lead out of it. Whatever the container's processes do with
// the file, OpenRegular does not wait for them. It refuses what is not a
// regular file, and files of /proc, /sys and their like. It fails with EWOULDBLOCK
// while another process has a lease on the file (fcntl(2), F_SETLEASE). The caller closes the file.
func OpenRegular(root *os.File, path string) (*os.File, error) {
	at, err := pathrs.OpenatInRoot(root, path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(at.Fd()), &fs); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	if !info.Mode().IsRegular() || slices.Contains(kernelFileSystems, fs.Type) {
		return nil, fmt.Errorf("open %s: %w", path, errNotRegular)
	}
	return pathrs.Reopen(at, unix.O_RDONLY|unix.O_NONBLOCK)
}
