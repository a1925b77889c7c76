package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

const insideVariable = "CONTAINER_TEST_INSIDE"

// The tests run as PID 1 of namespaces of their own, as the supervisor does, so
// that whatever they mount or start is gone with them. They need root.
func TestMain(m *testing.M) {
	Init()
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		probe(os.Args[2])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "listen-probe" {
		listenProbe(func(words ...any) { fmt.Fprintln(os.Stdout, words...) })
		return
	}
	surroundings.Settle()
	if os.Getenv(insideVariable) == "" {
		os.Exit(outside())
	}
	if err := prepareInside(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// outside runs the test program again in new namespaces.
func outside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Pdeathsig:  unix.SIGKILL,
	}
	err := cmd.Run()
	var status *exec.ExitError
	if errors.As(err, &status) {
		return status.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in namespaces of their own (as root?):", err)
		return 1
	}
	return 0
}

func prepareInside() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return nil
}
