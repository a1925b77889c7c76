package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/children"
)

// strangers is a cgroup of version 2 with processes of another PID namespace, which it lists as 0.
type strangers struct{ cgroups.Manager }

func (strangers) GetAllPids() ([]int, error) { return []int{0, 0}, nil }

// kill(2) takes 0 for the caller's own process group: a mistake ends this test's program.
func TestProcessesOfOtherNamespacesAreCountedAndNotSignalled(t *testing.T) {
	if left, err := signalAll(strangers{}, unix.Kill); left != 2 || err != nil {
		t.Errorf("%d processes are left, %v; want 2", left, err)
	}
}

// listing is a cgroup with two processes.
type listing struct{ cgroups.Manager }

func (listing) GetAllPids() ([]int, error) { return []int{12, 13}, nil }

// What a security module protects from SIGKILL is named, with the reason, after the others have been killed. What
// has ended is no error.
func TestADeniedSignalIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		first error
		want  string
	}{
		"AppArmor": {unix.EACCES, "kill process 12: the app's AppArmor profile, or another security module, denies the stager's signals: permission denied"},
		"ended":    {unix.ESRCH, "<nil>"},
	} {
		var killed []int
		left, err := signalAll(listing{}, func(pid int, sig unix.Signal) error {
			killed = append(killed, pid)
			if pid == 12 {
				return test.first
			}
			return nil
		})
		if left != 2 || len(killed) != 2 || fmt.Sprint(err) != test.want {
			t.Errorf("%s: %d processes are left, %v are killed, error %v", name, left, killed, err)
		}
	}
}

// The kernel's own kill is used where it is, and known by its file.
func TestCgroupKillIsKnownByItsFile(t *testing.T) {
	dir := t.TempDir()
	if hasKill(hierarchy{}) || hasKill(hierarchy{dir: dir}) {
		t.Error("there is none")
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !hasKill(hierarchy{dir: dir}) {
		t.Error("there is one")
	}
}

// hierarchy is a cgroup by its folder in the version 2 hierarchy, "" for none.
type hierarchy struct {
	cgroups.Manager
	dir string
}

func (h hierarchy) Path(string) string { return h.dir }

// A process that has been sent SIGKILL is dying until it is gone.
func TestAKilledProcessIsDyingUntilItIsGone(t *testing.T) {
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = sleeper.Process.Kill(), sleeper.Wait() }()
	pid := sleeper.Process.Pid
	if dying(pid) {
		t.Error("a living process is dying")
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !dying(pid) {
		t.Error("a process that was killed is not dying")
	}
	children.AwaitZombie(t, pid)
	if !dying(pid) {
		t.Error("a process that has ended is not dying")
	}
}
