package container

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/procstat"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/surroundings"
)

// hungry is a command that takes more memory than hungryLimit.
const (
	hungry      = "dd if=/dev/zero of=/dev/null bs=100M count=1"
	hungryLimit = 64 << 20
)

// awaitOtherKill waits until the container has seen an out-of-memory kill that the main process outlived.
func awaitOtherKill(t *testing.T, c *container) {
	t.Helper()
	m, err := c.cgroups()
	if err != nil {
		t.Fatal(err)
	}
	seen := func() bool {
		kills, err := m.OOMKillCount()
		return err == nil && kills > 0 && !c.OOMKilled()
	}
	if !surroundings.Eventually(t, "a process is killed because of memory", seen) {
		t.Fatal("does the machine swap?")
	}
}

// OOMKilled is true only if an out-of-memory kill ended the main process,
// not its child, nor a command.
func TestOOMKilledIsOfTheMainProcess(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	for name, test := range map[string]struct {
		main, command string
	}{
		"child":   {"(" + hungry + "); echo outlived; exec sleep 1000", "true"},
		"command": {"echo up; exec sleep 1000", hungry},
	} {
		t.Run(name, func(t *testing.T) {
			up, ready, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer up.Close()
			s := testSpec(root, "sh", "-c", test.main+" >/dev/null 2>&1")
			s.Resources = spec.Resources{MemoryLimit: hungryLimit}
			running, pid := startSleeper(t, r, s, ready)
			ready.Close()
			if _, err := io.ReadAll(up); err != nil {
				t.Fatal(err)
			}
			execOutput(t, running, rootCommand("sh", "-c", test.command))
			c := running.(*container)
			awaitOtherKill(t, c)
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			surroundings.Eventually(t, "the main process has ended", func() bool {
				stat, err := procstat.Read(pid)
				return err != nil || stat.Ended()
			})
			if c.OOMKilled() {
				t.Error("another process's death counts as the main process's")
			}
		})
	}
}

// The main process has outlived other kills, and is then killed itself: OOMKilled is true.
func TestOOMKilledIsTrueAfterOtherKills(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	in, gate, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s := testSpec(root, "sh", "-c", "("+hungry+"); read gate; exec "+hungry)
	s.Resources = spec.Resources{MemoryLimit: hungryLimit}
	c := containerOf(t, r, s)
	p, err := c.Start(spec.Stdio{Stdin: in})
	if err != nil {
		t.Fatal(err)
	}
	awaitOtherKill(t, c)
	gate.Close()
	<-p.Done()
	status := p.Status()
	if status.Signal() != unix.SIGKILL || !c.OOMKilled() {
		t.Errorf("status %#x, OOMKilled %v", status, c.OOMKilled())
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
}

// A process that is killed before it is its program is told with the memory limit only if the kernel has killed one
// because of it.
func TestAKillIsToldWithTheMemoryLimit(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	in, gate, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s := testSpec(root, "sh", "-c", "read gate; ("+hungry+"); exec sleep 1000")
	s.Resources = spec.Resources{MemoryLimit: hungryLimit}
	c := containerOf(t, r, s)
	p, err := c.Start(spec.Stdio{Stdin: in})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.withMemoryLimit(io.EOF); got != io.EOF { //nolint:errorlint // the same one
		t.Errorf("before: %v", got)
	}
	gate.Close()
	awaitOtherKill(t, c)
	if got, want := c.withMemoryLimit(io.EOF).Error(), "EOF; its memory limit is 67108864 bytes"; got != want {
		t.Errorf("after: %s, want %s", got, want)
	}
	if err := unix.Kill(c.initPID, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	<-p.Done()
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
}
