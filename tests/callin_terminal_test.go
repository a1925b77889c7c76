package tests

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// terminal is a program on its own terminal; the test plays the user.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File  // keeps the terminal open while no program has it, and shows its mode
	before [4]uint32 // its mode before the program has started
	shown  bytes.Buffer
}

// onTerminal starts a program on a terminal of 100 by 30.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err == nil {
		err = pty.Setsize(master, &pty.Winsize{Cols: 100, Rows: 30})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	// Deadlines work only in non-blocking mode.
	waits, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(waits, true); err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(waits), "terminal")
	t.Cleanup(func() { ours.Close() })
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	m := &terminal{t: t, cmd: cmd, master: ours, slave: slave}
	m.before = m.mode()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return m
}

func (m *terminal) types(text string) {
	m.t.Helper()
	if _, err := m.master.WriteString(text); err != nil {
		m.t.Fatal(err)
	}
}

// sees reads until the text appears, and drops everything up to its end.
func (m *terminal) sees(text string) {
	m.t.Helper()
	if err := m.master.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		if _, after, ok := bytes.Cut(m.shown.Bytes(), []byte(text)); ok {
			rest := bytes.Clone(after)
			m.shown.Reset()
			m.shown.Write(rest)
			return
		}
		n, err := m.master.Read(buf)
		m.shown.Write(buf[:n])
		if err != nil {
			m.t.Fatalf("wait for %q: %v; shown is %q", text, err, m.shown.Bytes())
		}
	}
}

// mode returns the terminal's local and input flags: echo, lines, ^C.
func (m *terminal) mode() [4]uint32 {
	m.t.Helper()
	mode, err := unix.IoctlGetTermios(int(m.slave.Fd()), unix.TCGETS)
	if err != nil {
		m.t.Fatal(err)
	}
	return [4]uint32{mode.Iflag, mode.Oflag, mode.Cflag, mode.Lflag}
}

// isRestored checks that the terminal's mode is as it was before the program has started.
func (m *terminal) isRestored() {
	m.t.Helper()
	if after := m.mode(); after != m.before {
		m.t.Errorf("the terminal's mode is %o, was %o", after, m.before)
	}
}

// ends waits for the program's end and returns its exit status.
func (m *terminal) ends() int {
	m.t.Helper()
	late := time.AfterFunc(harness.Patience, func() { _ = m.cmd.Process.Kill() })
	_ = m.cmd.Wait() // its status is the answer
	if !late.Stop() {
		m.t.Fatalf("it hangs; shown is %q", m.shown.Bytes())
	}
	return m.cmd.ProcessState.ExitCode()
}

// A user's session: size, echo, ^C, job control, resize, exit status, and the restored terminal.
func TestAUsersTerminalSessionWorks(t *testing.T) {
	t.Parallel()
	p := sleeper(suite.NewMachine(t))
	cmd := p.Command("exec", "-it", p.Name, "app", "--", "/bin/sh", "-i")
	cmd.Env = append(cmd.Env, "TERM=vt220")
	m := onTerminal(t, cmd)
	m.sees("# ")
	for _, step := range []struct{ types, sees string }{
		{"tty; stty size; echo $TERM\r", "/dev/pts/0\r\n30 100\r\nvt220\r\n"},
		// The terminal echoes the input, which must not look like the answer.
		{"sh -c 'echo wa\"\"it; exec sleep 1000'\r", "wait\r\n"},
		{"\x03", "^C"},
		{"echo status $?\r", "status 130\r\n"},
		{"sh -c 'echo wa\"\"it; exec sleep 1001'\r", "wait\r\n"},
		{"\x1a", "Stopped"},
		{"jobs\r", "Stopped"},
		{"bg; kill %1; wait %1; echo killed $?\r", "killed 143\r\n"},
		{"sh -c 'trap \"stty size; kill %1; exit\" WINCH; echo wa\"\"it; sleep 1000 & wait'\r", "wait\r\n"},
	} {
		m.types(step.types)
		m.sees(step.sees)
	}
	if err := pty.Setsize(m.master, &pty.Winsize{Cols: 77, Rows: 11}); err != nil {
		t.Fatal(err)
	}
	m.sees("11 77\r\n")
	m.types("exit 42\r")
	if code := m.ends(); code != 42 {
		t.Errorf("exit status %d", code)
	}
	m.isRestored()
	succeeds(p, "app", `[ -z "$(ps -o stat | grep Z)" ]`)
}

// run prints the whole output before it exits, even if there is a lot of it.
func TestTerminalShowsAllOutput(t *testing.T) {
	t.Parallel()
	p := sleeper(suite.NewMachine(t))
	for range 20 {
		m := onTerminal(t, p.Command("exec", "--tty", p.Name, "app", "--", "/bin/sh", "-c", "seq 20000; echo the last word; exit 3"))
		m.sees("\r\n20000\r\nthe last word\r\n")
		if code := m.ends(); code != 3 {
			t.Errorf("exit status %d", code)
		}
	}
}

// When the launcher is killed, its command ends; when it is terminated, it also restores the terminal.
func TestAKilledCallerTakesItsTerminalsCommand(t *testing.T) {
	t.Parallel()
	p := sleeper(suite.NewMachine(t))
	before := len(p.Processes())
	m := onTerminal(t, p.Command("exec", "-it", p.Name, "app", "--", "/bin/sh", "-c", "trap '' HUP; echo up; sleep 1000; sleep 1000"))
	mode := m.mode()
	m.sees("up")
	children := exec.Command("pgrep", "-P", pidOf(m.cmd))
	r := harness.Finish(t, children)
	if r.Code != 0 {
		t.Fatalf("the launcher has no call-in: %s", r.Stderr)
	}
	if out := harness.Finish(t, exec.Command("kill", "-KILL", strings.TrimSpace(r.Stdout))); out.Code != 0 {
		t.Fatal(out.Stderr)
	}
	if code := m.ends(); code != 128+int(unix.SIGKILL) {
		t.Errorf("exit status %d", code)
	}
	if after := m.mode(); after != mode {
		t.Errorf("the terminal's mode is %o, was %o", after, mode)
	}
	harness.Eventually(t, "the command is gone", func() bool { return len(p.Processes()) == before })
}
