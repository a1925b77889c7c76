package spec

import (
	"slices"
	"syscall"
)

// Seccomp says which system calls a process may make. The zero value is the
// default filter. It is data: a runtime compiles it to a program for the kernel.
//
// A filter that blocks the calls that it does not list answers ENOSYS to a call whose number is above all numbers of
// listed calls in the process's ABI, whatever error or action the filter has for blocked calls: so C libraries find an
// older call in place of a call that is newer than the filter.
type Seccomp struct {
	Kind    SeccompKind
	Set     SyscallSet // for SeccompSet
	Profile string     // for SeccompProfile
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
	// SeccompProfile is the filter of the Profile: JSON as Docker and Kubernetes have it, with rules that depend on the
	// Process's Capabilities, the architecture and the kernel. Its actions are SeccompActions.
	SeccompProfile
)

// SeccompActions returns the actions of a profile.
func SeccompActions() []string {
	return []string{
		"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD",
		"SCMP_ACT_LOG", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP",
	}
}

// SeccompOperators returns the operators of a profile's conditions.
func SeccompOperators() []string {
	return []string{
		"SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE",
	}
}

// SyscallSet is a seccomp isolator: the system calls that an app keeps or loses (appc, ace.md,
// seccomp-retain-set and -remove-set).
type SyscallSet struct {
	Retain   bool     // allow only Syscalls; if false, block only Syscalls
	Syscalls []string // see Names; a runtime skips a name that the machine does not have

	// Errno is the error of a blocked call; if it is 0, the call kills the process with SIGSYS. See Seccomp for
	// calls that are newer than a retain-set.
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
