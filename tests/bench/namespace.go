package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	fixture "kurma.io/stager/tests/daemon"
)

// insideVariable marks the bench process that runs in its own namespace.
const insideVariable = "STAGER_BENCH_INSIDE"

func insideOwnNamespace() bool { return os.Getenv(insideVariable) != "" }

// reexecInOwnNamespace runs the bench again in a mount namespace of its own, so
// that the host has back its mounts whatever ends the bench. Interrupted, it
// clears away what was left running.
func reexecInOwnNamespace() error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is about the thread that forked
	err := cmd.Run()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("run in a mount namespace: %w", err)
	if cmd.Process == nil {
		return err
	}
	return errors.Join(err, clearAway(cmd.Process.Pid))
}

// clearAway kills what runs in the cgroups of a bench that was ended early, and
// removes them and its folder, whose mounts went with the last of them.
func clearAway(bench int) error {
	mounts, err := fixture.Hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, mount := range mounts {
		groups, err := filepath.Glob(fmt.Sprintf("%s/bench-%d-*", mount, bench))
		errs = append(errs, err)
		for _, group := range groups {
			errs = append(errs, killTree(group), fixture.RemoveCgroup(filepath.Base(group)))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(workDir(bench)))...)
}

// A thread runs functions in namespaces other than the bench's. What
// they start inherits them.
type thread struct {
	work chan func()
}

// serve never unlocks the thread, so that it ends with its goroutine.
func (t *thread) serve() {
	runtime.LockOSThread()
	for f := range t.work {
		f()
	}
}

// do runs f on the thread and waits for it.
func (t *thread) do(f func() error) error {
	done := make(chan error, 1)
	t.work <- func() { done <- f() }
	return <-done
}

// mountPlainCgroup2 replaces the cgroup hierarchies by one of version 2, in this mount namespace. It lacks the controllers
// that the machine uses in version 1.
func mountPlainCgroup2() error {
	if err := unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /sys/fs/cgroup: %w", err)
	}
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	return nil
}
