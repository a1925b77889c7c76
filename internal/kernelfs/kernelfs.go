// Package kernelfs tells the kernel's own file systems from those that store files.
package kernelfs

import (
	"os"

	"golang.org/x/sys/unix"
)

const configfsMagic = 0x62656570 // CONFIGFS_MAGIC in fs/configfs/mount.c

// Has reports whether an open file is on a file system whose files call themselves regular, although the kernel makes
// their content up. To read one can wait (trace_pipe), never end, take something away from its other readers (kmsg) or
// act on a device; to write one is a command to the kernel. The file may be open with O_PATH.
func Has(file *os.File) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil {
		return false, os.NewSyscallError("fstatfs", err)
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
		unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.RDTGROUP_SUPER_MAGIC, unix.BINFMTFS_MAGIC,
		configfsMagic:
		return true, nil
	}
	return false, nil
}
