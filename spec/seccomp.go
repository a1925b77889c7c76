package spec

import "syscall"

// Seccomp says which system calls a process may make. The zero value is the
// default filter. It is data: a runtime makes a program for the kernel from it.
type Seccomp struct {
	Kind SeccompKind
	Set  SyscallSet // of SeccompSet
}

// SeccompKind is where a filter comes from.
type SeccompKind int

// The kinds of filter.
const (
	// SeccompDefault is the filter of the profile that Docker and containerd use,
	// for a process with the Process's Capabilities.
	SeccompDefault SeccompKind = iota
	SeccompSet                 // the Set
	SeccompOff                 // no filter
)

// SyscallSet is a seccomp isolator: the system calls that an app is left with,
// or that are taken from it (appc, ace.md, seccomp-retain-set and -remove-set).
// A retain-set always allows the calls without which a process cannot begin or end.
type SyscallSet struct {
	Retain   bool     // the named ones are allowed and all others blocked; else the reverse
	Syscalls []string // names; one that the machine does not have is skipped

	// Errno is what a blocked call returns; where it is 0, the call kills the process with SIGSYS.
	Errno syscall.Errno
}
