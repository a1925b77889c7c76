// Package surroundings sets the signals, the umask, the limits and the variables of a test program, and of the processes
// that it starts, to those of a login shell: nohup and shell scripts leave signals ignored, and hardened
// machines have another umask. It also limits how long a test waits, and ends what a test has started.
package surroundings

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
)

// settled marks a test program that has executed itself in these surroundings.
const settled = "SURROUNDINGS_SETTLED"

// Settle gives the test program, and so all processes that it starts, the umask 022, no ignored or blocked signals below
// 32, the soft limits of a login shell as far as the hard limits allow, and none of the variables that name a caller's
// files and sockets. It executes the test program again, once: only then are the signals not ignored, and the Go runtime knows the
// limit of descriptors that it passes on. TestMain calls it before it runs the tests. A test that needs other
// surroundings sets them afterwards.
func Settle() {
	if _, done := os.LookupEnv(settled); done {
		if err := os.Unsetenv(settled); err != nil {
			panic(err)
		}
		return
	}
	unix.Umask(0o022)
	dropVariables()
	err := errors.Join(setLimits(), acceptSignals(), os.Setenv(settled, ""))
	if err == nil {
		err = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	panic(err)
}

// SettleAsRoot is Settle for tests that need root, all of a package. For a user without root it ends the test program:
// go test -short passes without these tests, and go test fails.
func SettleAsRoot() {
	if os.Geteuid() != 0 {
		leaveInShort("they need root")
		fmt.Fprintln(os.Stderr, "these tests must run as root")
		os.Exit(1)
	}
	Settle()
}

// SettleWithBuilt is Settle for tests of what make has built, as root, all of a package. go test -short passes without them.
func SettleWithBuilt() {
	leaveInShort("they need root and what make aci and make images build")
	SettleAsRoot()
}

func leaveInShort(why string) {
	flag.Parse()
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "-short leaves these tests out:", why)
		os.Exit(0)
	}
}

// Root is called at the begin of a test, or by what it begins with, that needs root. For a user without root go test
// -short leaves the test out, and go test fails.
func Root(t testing.TB) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case testing.Short():
		t.Skip("this test needs root") //nolint:forbidigo // nobody asks a user without root for all tests
	default:
		t.Fatal("this test must run as root")
	}
}

// acceptSignals prepares an execve(2) of this goroutine after which no signal is ignored or blocked.
func acceptSignals() error {
	for sig := unix.Signal(1); sig < 32; sig++ {
		if signal.Ignored(sig) && sig != unix.SIGPROF { // the Go runtime does not catch it for Notify
			// After execve(2) a caught signal has its default action again.
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	runtime.LockOSThread() // the program that it executes gets this thread's mask
	var none unix.Sigset_t
	return unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
}

// setLimits sets the soft limits to those of a login shell, or to lower hard limits.
func setLimits() error {
	for resource, soft := range map[int]uint64{
		unix.RLIMIT_AS: unix.RLIM_INFINITY, unix.RLIMIT_CPU: unix.RLIM_INFINITY, unix.RLIMIT_DATA: unix.RLIM_INFINITY,
		unix.RLIMIT_FSIZE: unix.RLIM_INFINITY, unix.RLIMIT_NPROC: unix.RLIM_INFINITY,
		unix.RLIMIT_NOFILE: 1024, unix.RLIMIT_STACK: 8 << 20,
	} {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(resource, &limit); err != nil {
			return err
		}
		limit.Cur = min(soft, limit.Max)
		if err := syscall.Setrlimit(resource, &limit); err != nil {
			return err
		}
	}
	return nil
}

// dropVariables removes the variables by which a service manager, a desktop or a user changes what programs do.
func dropVariables() {
	for _, name := range []string{
		"NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "JOURNAL_STREAM", "INVOCATION_ID", "WATCHDOG_USEC", "WATCHDOG_PID",
		"XDG_RUNTIME_DIR", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "GNUPGHOME",
		"LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "TZ", "NO_COLOR", "POSIXLY_CORRECT",
	} {
		_ = os.Unsetenv(name) // it fails for a malformed name alone
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
