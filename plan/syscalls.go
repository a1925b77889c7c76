package plan

import (
	_ "embed" // for the list
	"strings"
)

// syscalls are the names of all system calls on all machines that libseccomp knows, one a
// line, sorted. Package container makes the list from its own libseccomp and tests that it is
// current.
//
//go:embed syscalls.txt
var syscalls string

// isSyscall tells whether a name is that of a system call on any machine.
func isSyscall(name string) bool {
	return name != "" && !strings.Contains(name, "\n") && strings.Contains("\n"+syscalls, "\n"+name+"\n")
}
