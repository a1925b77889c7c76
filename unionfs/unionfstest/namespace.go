// Package unionfstest is the conformance suite of unionfs.Driver. A driver's test calls Main from its
// TestMain, so that its mounts end with it. It calls Run with the driver, and with the cases that the
// driver does not meet and the reasons:
//
//	func TestMain(m *testing.M) { unionfstest.Main(m) }
//	func TestOverlayConforms(t *testing.T) { unionfstest.Run(t, unionfs.Overlay{}, nil) }
package unionfstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

const inNamespace = "UNIONFSTEST_NAMESPACE"

// Main runs m's tests in a child process with a new, private mount namespace, and exits with their
// result. Without root it prints an error and exits 1, or with -short exits 0.
//
// A new namespace of one thread would not be enough: threads that Go starts later would not be in it.
func Main(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	surroundings.SettleAsRoot()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "unionfstest: run tests in a mount namespace (are we root?):", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
