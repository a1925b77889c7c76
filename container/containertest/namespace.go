// Package containertest is the conformance suite of spec.Runtime, and of the containers and
// processes that a runtime makes. The runtime's test calls Main from its TestMain. It calls Run
// with a function that makes the runtime, and with the cases that the runtime does not meet and
// the reasons:
//
//	func TestMain(m *testing.M) { containertest.Main(m) }
//	func TestRuntimeConforms(t *testing.T) {
//		containertest.Run(t, "mine", func(cgroup string) spec.Runtime { return New(cgroup) }, nil)
//	}
//
// The apps are Debian's static busybox. The package links neither cgo nor libcontainer.
package containertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/surroundings"
)

const inNamespace = "CONTAINERTEST_NAMESPACE"

// Main runs m's tests as PID 1 of new namespaces, and exits with their result.
// The tests' mounts and processes end with the namespaces. Main needs root: without it,
// it exits 1, or with -short 0.
//
// In a container of the suite, Main is a program that tries to read other processes. For that the
// test program must be linked statically.
func Main(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == reachCommand {
		reach()
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == signalCommand {
		sendSignals()
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == probeCommand {
		probe(os.Args[2])
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == walkCommand {
		walk()
		os.Exit(0)
	}
	surroundings.SettleAsRoot()
	if os.Getenv(inNamespace) == "" {
		os.Exit(outside())
	}
	if err := prepareInside(); err != nil {
		fmt.Fprintln(os.Stderr, "containertest:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Inside reports whether this process is the one that runs the tests.
func Inside() bool { return os.Getenv(inNamespace) != "" }

// outside runs the test program again in new namespaces.
func outside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "containertest: run tests in namespaces of their own (are we root?):", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// lowQueueBytes is the tests' soft limit of RLIMIT_MSGQUEUE.
const lowQueueBytes = spec.MessageQueueBytes / 2

func prepareInside() error {
	var queues unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &queues); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	queues.Cur = lowQueueBytes
	if err := unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &queues); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_SLAVE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}
