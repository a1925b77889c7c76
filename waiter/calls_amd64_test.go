package waiter

import "golang.org/x/sys/unix"

// The system calls of the C library's functions.
const (
	sysPoll     = unix.SYS_POLL
	sysDup2     = unix.SYS_DUP2
	sysReadlink = unix.SYS_READLINK
)
