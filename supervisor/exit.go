package supervisor

import "syscall"

// Exit is how a process ended.
type Exit struct {
	// Code is the process's own exit code, or 128+N when signal N ended it.
	Code int
	// Reason is the signal's name in lower case ("killed", "terminated",
	// "segmentation fault"), "oom-killed" for a main process that the kernel
	// killed because its cgroup had reached its memory limit, or "" for a plain exit.
	// For an app that could not be started it names the step that failed.
	Reason string
}

// exitOf translates a wait status (wait(2)).
func exitOf(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Code: 128 + int(status.Signal()), Reason: status.Signal().String()}
	}
	return Exit{Code: status.ExitStatus()}
}
