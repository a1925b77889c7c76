package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// takeInheritance is startSupervisor's other side.
func takeInheritance() (in inherited, lifeline *os.File, err error) {
	var list inheritance
	if err := json.Unmarshal([]byte(os.Getenv(inheritanceVariable)), &list); err != nil {
		return in, nil, fmt.Errorf("%s: %w", inheritanceVariable, err)
	}
	if err := os.Unsetenv(inheritanceVariable); err != nil {
		return in, nil, err
	}
	take := func(fd int, name string) *os.File {
		if fd == 0 {
			return nil
		}
		unix.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), name)
	}
	in.ready = take(list.Ready, "ready")
	in.stdio = make(map[string][3]*os.File)
	for app, fds := range list.Stdio {
		in.stdio[app] = [3]*os.File{take(fds[0], "stdin"), take(fds[1], "stdout"), take(fds[2], "stderr")}
	}
	return in, take(list.Lifeline, "lifeline"), nil
}

// dieWith ends the supervisor, and the pod with it, when the stager's first
// process is gone: PID 1 takes its PID namespace along, and in the host's, the
// pod's processes are killed one by one. Nobody is left to be told anything.
func (b *boot) dieWith(lifeline *os.File) {
	_, _ = lifeline.Read(make([]byte, 1)) // ends at end of file, or with an error that means the same
	if g := b.cgroup; g != nil && b.pod.Namespaces.hostPID {
		_ = g.Kill()
	}
	os.Exit(1)
}
