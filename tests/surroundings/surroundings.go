// Package surroundings sets the signals and the umask of a test program, and of the processes that it
// starts, to those of a login shell: nohup and shell scripts leave signals ignored, and hardened
// machines have another umask. It also limits how long a test waits, and ends what a test has started.
package surroundings

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
)

// Settle sets the umask to 022. If signals are ignored, it executes the test program again without that: whatever the
// program does to its signals later, they are not ignored again. TestMain calls it before it runs the tests. A test that
// needs another umask or ignored signals sets them afterwards.
func Settle() {
	unix.Umask(0o022)
	ignored := false
	for sig := unix.Signal(1); sig < 32; sig++ {
		if signal.Ignored(sig) && sig != unix.SIGPROF { // the Go runtime does not catch it for Notify
			// After execve(2) a caught signal has its default action again.
			signal.Notify(make(chan os.Signal, 1), sig)
			ignored = true
		}
	}
	if ignored {
		panic(unix.Exec("/proc/self/exe", os.Args, os.Environ())) // it returns only an error
	}
}

// Patience limits every wait of a test: a longer wait means that something hangs. It is a minute, or PATIENCE, a
// time.Duration, for a machine whose processors are emulated.
var Patience = patience(os.Getenv("PATIENCE")) //nolint:gochecknoglobals // set once, and read

func patience(text string) time.Duration {
	if text == "" {
		return time.Minute
	}
	limit, err := time.ParseDuration(text)
	if err != nil {
		panic("PATIENCE: " + err.Error())
	}
	return limit
}

// Eventually polls a condition until it holds, and returns true. If it does not hold within Patience,
// Eventually marks the test as failed and returns false. what names the condition. Any goroutine may
// call it.
func Eventually(t testing.TB, what string, condition func() bool) bool {
	t.Helper()
	holds := poll.Until(Patience, 100*time.Millisecond, condition)
	if !holds {
		t.Errorf("%s: not within %s", what, Patience)
	}
	return holds
}

// Start starts a command that the kernel kills when the test program ends. The parent-death signal is about the thread
// that forks (prctl(2)), and the Go runtime ends threads: one of its own starts the command, and stays as long.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(unix.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}()
	return <-started
}
