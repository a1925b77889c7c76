package pid1

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/firstprocess"
)

// TestMain is also the process that calls Wait, if it is called by the stager's name, and the supervisor,
// which tries to leave the stager's root.
func TestMain(m *testing.M) {
	if os.Getenv(names.SupervisorVariable) != "" && firstprocess.IsWanted() {
		supervise()
	}
	if os.Getenv(names.SupervisorVariable) != "" {
		if err := daemon.LeaveChroot(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(7)
	}
	if filepath.Base(os.Args[0]) == names.Program {
		namespaces := uintptr(unix.CLONE_NEWPID)
		if firstprocess.IsWanted() {
			namespaces = firstprocess.Namespaces()
		}
		code, err := Wait(namespaces)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
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
