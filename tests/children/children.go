// Package children makes child processes of a test program and waits for their ends without
// collecting them, for tests of the code that does collect them.
package children

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
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

// AwaitZombie waits until a child has ended, and leaves its status to be waited for. After
// surroundings.Patience it ends the test as failed.
func AwaitZombie(t testing.TB, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("open child %d: %v", pid, err)
	}
	defer unix.Close(fd)
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(surroundings.Patience); ended[0].Revents == 0; {
		left := time.Until(deadline)
		if left <= 0 {
			t.Fatalf("child %d has not ended within %s", pid, surroundings.Patience)
		}
		if _, err := unix.Poll(ended, int(left.Milliseconds())+1); err != nil && err != unix.EINTR {
			t.Fatalf("wait for child %d: %v", pid, err)
		}
	}
}

// AwaitNone waits until the test has no child, not even a zombie. Other code collects them. After
// surroundings.Patience it ends the test as failed.
func AwaitNone(t testing.TB) {
	t.Helper()
	// A child that has ended is there until the other code collects it, and is found meanwhile.
	none := poll.Until(surroundings.Patience, time.Millisecond, func() bool {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err != nil && err != unix.ECHILD && err != unix.EINTR {
			t.Fatal(err)
		}
		return err == unix.ECHILD
	})
	if !none {
		t.Fatalf("children are left after %s", surroundings.Patience)
	}
}
