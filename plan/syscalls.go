package plan

import (
	_ "embed" // for the list
	"strings"
)

// syscalls are the names of all system calls on all machines that libseccomp knows, one to a
// line, sorted. Package container generates the list from its libseccomp, and tests that the
// list is current.
//
//go:embed syscalls.txt
var syscalls string

// isSyscall reports whether name is a system call on any machine.
func isSyscall(name string) bool {
	return name != "" && !strings.Contains(name, "\n") && strings.Contains("\n"+syscalls, "\n"+name+"\n")
}
