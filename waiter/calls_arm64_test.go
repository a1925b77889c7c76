package waiter

import "golang.org/x/sys/unix"

// The system calls of the C library's functions.
const (
	sysPoll     = unix.SYS_PPOLL
	sysDup2     = unix.SYS_DUP3
	sysReadlink = unix.SYS_READLINKAT
)
