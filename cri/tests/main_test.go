// Package tests tests the built kurma-cri through the CRI's own client, with a registry, CNI's plugins and a stager.
// The tests run in mount, network, IPC and UTS namespaces of their own.
package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/tests/hostile"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// insideVariable says that the process is in the tests' namespaces.
const insideVariable = "KURMA_CRI_TESTS_INSIDE"

func TestMain(m *testing.M) {
	if program := hostile.Programs()[filepath.Base(os.Args[0])]; program != nil { // in a container
		fmt.Fprintln(os.Stderr, program())
		os.Exit(1)
	}
	if filepath.Base(os.Args[0]) == addonProgram {
		if err := callAsAddon(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	surroundings.SettleWithBuilt()
	if os.Getenv(insideVariable) == "" {
		os.Exit(runInside())
	}
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), networks.SetUp())
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up namespaces:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// runInside executes the tests again in namespaces of their own.
func runInside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Pdeathsig: unix.SIGKILL,
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in namespaces:", err)
		return 1
	}
	return 0
}
