package procstat

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// start starts cat, by a name of the test's choice, in a session of its own. It ends with its stdin.
func start(t *testing.T, name string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	path, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(file)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, func() { in.Close() }
}

// A name with parentheses, spaces and something like a state does not move the fields.
func TestNoNameOfAProcessMovesTheFields(t *testing.T) {
	for _, name := range []string{"cat", "a b", "c) Z 0 (", "d) Z 1 2 3 ", ")))"} {
		cmd, _ := start(t, name)
		s, err := Read(cmd.Process.Pid)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if s.Session != cmd.Process.Pid || s.Threads != 1 || s.Start == 0 || s.Ended() || s.Exiting() {
			t.Errorf("%q: %+v, want session %d and one thread", name, s, cmd.Process.Pid)
		}
	}
}

func TestLaterProcessHasALaterStart(t *testing.T) {
	own, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd, _ := start(t, "cat")
	if s, err := Read(cmd.Process.Pid); err != nil || s.Start < own.Start {
		t.Errorf("the child has start %d, %v, this process %d", s.Start, err, own.Start)
	}
	if own.Threads < 2 || own.Ended() {
		t.Errorf("this process has several threads and runs: %+v", own)
	}
}

func TestZombieHasEnded(t *testing.T) {
	cmd, end := start(t, "cat")
	end()
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	s, err := Read(cmd.Process.Pid)
	if err != nil || !s.Ended() || s.State != 'Z' || !s.Exiting() {
		t.Errorf("zombie: %+v, %v", s, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("process that is gone: %v", err)
	}
}

func TestFirstThreadMayEndBeforeTheOthers(t *testing.T) {
	const rest = " 0 1 7 0 0 4194308 0 0 0 0 0 0 0 0 0 0 "
	for line, want := range map[string]bool{
		"5 (x) Z" + rest + "1 0 99": true,
		"5 (x) Z" + rest + "2 0 99": false,
		"5 (x) X" + rest + "0 0 99": true,
		"5 (x) S" + rest + "1 0 99": false,
	} {
		s, err := parse([]byte(line))
		if err != nil || s.Ended() != want || s.Session != 7 || s.Start != 99 || !s.Exiting() {
			t.Errorf("%q: %+v, %v, want ended %v", line, s, err, want)
		}
	}
}

func TestShortLineIsAnError(t *testing.T) {
	for _, line := range []string{"", "5 (x", "5 (x) S 0 1", "5 (x) S 0 1 y 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 99"} {
		if s, err := parse([]byte(line)); err == nil {
			t.Errorf("%q: %+v, want an error", line, s)
		}
	}
}

func TestTheOffsetOfATimeNamespaceIsInTicks(t *testing.T) {
	for text, want := range map[string]int64{
		"monotonic           5         0\nboottime            0         0\n":          0,
		"monotonic           0         0\nboottime            3 250000000\n":          325,
		"monotonic           0         0\nboottime           -3 250000000\n":          -275,
		"monotonic           0         0\nboottime       100000         0\nnew 1 2\n": 10000000,
	} {
		if got, err := bootOffset(text); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "monotonic 1 2\n", "boottime x 0\n", "boottime 0 x\n"} {
		if got, err := bootOffset(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
	if _, err := BootOffset(); err != nil {
		t.Error(err)
	}
}
