package spec

import (
	"slices"
	"syscall"
)

// Seccomp says which system calls a process may make. The zero value is the
// default filter. It is data: a runtime compiles it to a program for the kernel.
type Seccomp struct {
	Kind SeccompKind
	Set  SyscallSet // for SeccompSet
}

// SeccompKind says where a filter comes from.
type SeccompKind int

// The kinds of filter.
const (
	// SeccompDefault is the filter of the profile that Docker and containerd use,
	// for a process with the Process's Capabilities.
	SeccompDefault SeccompKind = iota
	SeccompSet                 // the Set
	SeccompOff                 // no filter
)

// SyscallSet is a seccomp isolator: the system calls that an app keeps or loses (appc, ace.md,
// seccomp-retain-set and -remove-set).
type SyscallSet struct {
	Retain   bool     // allow only Syscalls; if false, block only Syscalls
	Syscalls []string // see Names; a runtime skips a name that the machine does not have

	// Errno is the error of a blocked call; if it is 0, the call kills the process with SIGSYS.
	Errno syscall.Errno
}

// Names returns the names that the set allows or blocks: a retain-set always allows the calls without which a process
// cannot begin or end.
func (s SyscallSet) Names() []string {
	if !s.Retain {
		return s.Syscalls
	}
	return append(slices.Clip(s.Syscalls), "execve", "execveat", "exit", "exit_group", "rt_sigreturn", "sigreturn")
}
