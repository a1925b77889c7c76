package waiter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/firstprocess"
)

// TestMain is also the supervisor, if the waiter has started it,
// which tries to leave the stager's root; and a waiter whose system calls fail.
func TestMain(m *testing.M) {
	if os.Getenv(names.SupervisorVariable) != "" && firstprocess.IsWanted() {
		supervise()
	}
	if os.Getenv(names.SupervisorVariable) != "" && os.Getenv(helperVariable) != "" {
		superviseHelper()
	}
	if os.Getenv(names.SupervisorVariable) == "" && os.Getenv(failsVariable) != "" {
		becomeFailing()
	}
	if os.Getenv(names.SupervisorVariable) != "" {
		if err := daemon.LeaveChroot(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(7)
	}
	os.Exit(m.Run())
}

// supervise is the supervisor of the suite.
func supervise() {
	in := boot.TakeDescriptors(os.Environ())
	line, err := TakeLine()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	firstprocess.Supervise(line, in.Ready)
}

// The suite of every first process.
func TestFirstProcess(t *testing.T) { firstprocess.Run(t) }

// The waiter keeps stdio, its channel and its signals, and for some time the ready pipe.
func TestWaiterKeepsFewDescriptors(t *testing.T) { firstprocess.KeepsDescriptors(t, 6) }

// The waiter's mounts are the daemon's.
func TestWaiterKeepsTheDaemonsMounts(t *testing.T) { firstprocess.KeepsMounts(t) }

// Files are made in the stager's root, whatever the daemon's umask is.
func TestSupervisorHasAUmask(t *testing.T) { firstprocess.HasUmask(t) }

// A daemon puts the stager into a chroot; the supervisor cannot leave it, also on a host that runs from its
// initial RAM disk, where pivot_root(2) fails.
func TestSupervisorsRootIsTheStagers(t *testing.T) {
	for name, chroot := range map[string]func(ctx context.Context, folder, program string) *exec.Cmd{
		"host": daemon.Chroot, "host on its initial RAM disk": daemon.ChrootOnRAMDisk,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			own, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(t.TempDir(), names.Program)
			if err := os.Symlink(own, program); err != nil {
				t.Fatal(err)
			}
			cmd := chroot(ctx, t.TempDir(), program)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("exit code %d, %v: %s", code, err, out)
			}
		})
	}
}
