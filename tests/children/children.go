// Package children makes child processes of a test program and waits for their ends without
// collecting them, for tests of the code that does collect them.
package children

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Fork starts a shell script as a child of the test, with its stdio, and returns the PID.
func Fork(t testing.TB, script string) int {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// AwaitZombie waits until a child has ended, and leaves its status to be waited for.
func AwaitZombie(t testing.TB, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			t.Fatalf("wait for child %d: %v", pid, err)
		}
	}
}

// AwaitNone waits until the test has no child, not even a zombie. Other code collects them.
func AwaitNone(t testing.TB) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.ECHILD {
			return
		}
		if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}
