package inject

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageVariable says what an executed test program is: nothing for the test.
const stageVariable = "INJECT_STAGE"

const (
	stageEnter  = "enter"  // becomes the program of its arguments, under a filter
	stageInit   = "init"   // process 1 of a world's namespaces
	stageWorker = "worker" // injects faults in the world
)

// become makes this process a stage, if it was started as one, and exits then. The TestMain of the package calls it
// first.
func become() {
	var err error
	switch os.Getenv(stageVariable) {
	case "":
		return
	case stageEnter:
		_ = os.Unsetenv(stageVariable)
		err = enter(os.Args[1:])
	case stageInit:
		var code int
		if code, err = beInit(os.Args[1:]); err == nil {
			os.Exit(code)
		}
	case stageWorker:
		_ = os.Unsetenv(stageVariable)
		err = work(os.Args[1:])
		if errors.Is(err, errDirty) {
			os.Exit(dirtyCode)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inject:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// self returns a command that executes this program as a stage.
func self(stage string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "inject.test"
	cmd.Env = append(os.Environ(), stageVariable+"="+stage)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// newWorld returns the command of a world's first process, in namespaces of its own, which end with it.
func newWorld(args ...string) *exec.Cmd {
	cmd := self(stageInit, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	return cmd
}

// beInit is process 1: it mounts what the world has for itself, starts the worker and waits for every process. args
// begin with the world's folder. It returns the worker's exit code.
func beInit(args []string) (int, error) {
	mounts := []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"run", "/run", "tmpfs", 0}, // locks that programs of the machine share
		{"world", args[0], "tmpfs", 0},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return 1, fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("ip: %w: %s", err, out)
	}
	cmd := self(stageWorker, args...)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, os.NewSyscallError("wait4", err)
		case pid == cmd.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == cmd.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}
