package inject

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_X86_64

// oldCalls are the calls that newer architectures lack.
func oldCalls() []call {
	return []call{
		{name: "open", number: unix.SYS_OPEN, flags: 1, errnos: opens()},
		{name: "creat", number: unix.SYS_CREAT, errnos: opens()},
		{name: "rename", number: unix.SYS_RENAME, errnos: full()},
		{name: "unlink", number: unix.SYS_UNLINK, errnos: broken()},
		{name: "mkdir", number: unix.SYS_MKDIR, errnos: full()},
		{name: "rmdir", number: unix.SYS_RMDIR, errnos: broken()},
		{name: "link", number: unix.SYS_LINK, errnos: full()},
		{name: "symlink", number: unix.SYS_SYMLINK, errnos: full()},
		{name: "mknod", number: unix.SYS_MKNOD, errnos: full()},
		{name: "chmod", number: unix.SYS_CHMOD, errnos: broken()},
		{name: "chown", number: unix.SYS_CHOWN, errnos: broken()},
		{name: "lchown", number: unix.SYS_LCHOWN, errnos: broken()},
		{name: "fork", number: unix.SYS_FORK, errnos: forks()},
		{name: "vfork", number: unix.SYS_VFORK, errnos: forks()},
		{name: "pipe", number: unix.SYS_PIPE, errnos: descriptors()},
	}
}
