package callins

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// console is a caller on a terminal of its own.
type console struct {
	t   *testing.T
	cmd *exec.Cmd
	*os.File
	mode unix.Termios // before the caller
}

func newConsole(t *testing.T, cmd *exec.Cmd, rows, columns uint16) *console {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, cmd: cmd, File: master}
	t.Cleanup(func() { master.Close() })
	defer tty.Close()
	c.mode = c.modeNow()
	c.resize(rows, columns)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *console) modeNow() unix.Termios {
	c.t.Helper()
	mode, err := unix.IoctlGetTermios(int(c.Fd()), unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return *mode
}

func (c *console) resize(rows, columns uint16) {
	c.t.Helper()
	if err := pty.Setsize(c.File, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		c.t.Fatal(err)
	}
}

// end waits for the caller and checks that its terminal is as before.
func (c *console) end(want int) {
	c.t.Helper()
	tty, err := os.OpenFile(ttyName(c.t, c.File), os.O_RDWR|unix.O_NOCTTY, 0) // keeps the mode
	if err != nil {
		c.t.Fatal(err)
	}
	defer tty.Close()
	if got := exitCode(c.t, c.cmd.Wait()); got != want {
		c.t.Errorf("exit code %d, want %d", got, want)
	}
	if diff := cmp.Diff(c.mode, c.modeNow()); diff != "" {
		c.t.Errorf("terminal mode (-before +after):\n%s", diff)
	}
}

func ttyName(t *testing.T, master *os.File) string {
	t.Helper()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return "/dev/pts/" + strconv.Itoa(n)
}

func TestTerminalFollowsTheCallersSize(t *testing.T) {
	p := newPod(t, sleeper)
	script := `stty size; trap 'stty size; kill $!; exit 3' WINCH; sleep infinity & echo ready; wait`
	c := newConsole(t, p.caller("run", shell(t, script, onTerminal), "app"), 33, 111)
	readUntil(t, c, "33 111\r\nready\r\n")
	c.resize(44, 122)
	readUntil(t, c, "44 122\r\n")
	c.end(3)
}

func TestTerminalInterruptEndsTheCommand(t *testing.T) {
	p := newPod(t, sleeper)
	c := newConsole(t, p.caller("run", shell(t, "echo ready; exec sleep infinity", onTerminal), "app"), 24, 80)
	readUntil(t, c, "ready\r\n")
	if c.modeNow() == c.mode {
		t.Error("the caller's terminal is not in raw mode")
	}
	c.WriteString("\x03")
	c.end(130)
}

func TestTerminalIsTheCommands(t *testing.T) {
	p := newPod(t, sleeper)
	c := newConsole(t, p.caller("run", shell(t, "tty -s <&0 && tty -s <&1 && tty -s <&2 && echo $TERM; read line; echo got $line", onTerminal), "app"), 24, 80)
	readUntil(t, c, os.Getenv("TERM")+"\r\n")
	c.WriteString("words\r")
	readUntil(t, c, "words\r\ngot words\r\n") // the command's terminal echoes
	c.end(0)
}

func TestTerminalHasJobControl(t *testing.T) {
	p := newPod(t, sleeper)
	settings := `{"exec": ["/bin/sh", "-i"], "user": "0", "group": "0", "environment": [{"name": "PS1", "value": "> "}], "tty": true}`
	c := newConsole(t, p.caller("run", settings, "app"), 24, 80)
	readUntil(t, c, "> ")
	c.WriteString("sh -c 'echo run; read x'\r")
	readUntil(t, c, "run\r\n")
	c.WriteString("\x1a")
	readUntil(t, c, "Stopped")
	c.WriteString("fg\rx\rexit 9\r")
	c.end(9)
}

func TestTerminalShowsTheLastOutput(t *testing.T) {
	p := newPod(t, sleeper)
	var want bytes.Buffer
	for i := range 100000 {
		want.WriteString(strconv.Itoa(i+1) + "\r\n")
	}
	for name, script := range map[string]string{
		"exits":                "seq 100000; exit 5",
		"has background child": "trap '' HUP; sleep infinity & seq 100000; exit 5",
		"has noisy child":      "trap '' HUP; seq 100000; (sleep infinity; yes) & exit 5",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := p.caller("run", shell(t, script, onTerminal), "app")
			got := finish(t, cmd) // stdio is not a terminal, which tty allows
			if got.Code != 5 || got.Stdout != want.String() || got.Stderr != "" {
				t.Errorf("exit code %d, %d bytes of output, %q, want 5, %d bytes", got.Code, len(got.Stdout), got.Stderr, want.Len())
			}
		})
	}
}

// A command may close its terminal and open it again by its name.
func TestTerminalShowsOutputAfterItWasClosed(t *testing.T) {
	p := newPod(t, sleeper)
	// The call-in reads the closed terminal meanwhile.
	script := "exec <&- >&- 2>&-; sleep 0.2; echo again >/dev/tty; exit 5"
	got := finish(t, p.caller("run", shell(t, script, onTerminal), "app"))
	if diff := cmp.Diff(result{"again\r\n", "", 5}, got); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
}

func TestTerminalShowsTheOutputOfShortCommands(t *testing.T) {
	p := newPod(t, sleeper)
	for range 100 {
		got := finish(t, p.caller("run", shell(t, "printf last", onTerminal), "app"))
		if out := strings.TrimPrefix(got.Stdout, "^D\b\b"); got.Code != 0 || out != "last" {
			t.Fatalf("%+v, want the output last", got)
		}
	}
}

// The end of a caller's pipe is typed as the terminal's.
func TestTerminalReceivesTheEndOfInput(t *testing.T) {
	p := newPod(t, sleeper)
	for _, input := range []string{"hi", "hi\n", ""} {
		cmd := p.caller("run", shell(t, "stty -echo; n=$(wc -c); echo $n", onTerminal), "app")
		cmd.Stdin = strings.NewReader(input)
		if got := finish(t, cmd); got.Code != 0 || !strings.HasSuffix(got.Stdout, strconv.Itoa(len(input))+"\r\n") {
			t.Errorf("input %q: %+v", input, got)
		}
	}
}

func TestTerminalForwardsASignal(t *testing.T) {
	p := newPod(t, sleeper)
	c := newConsole(t, p.caller("run", shell(t, ready("trap 'kill $!; exit 6' TERM"), onTerminal), "app"), 24, 80)
	readUntil(t, c, "ready\r\n")
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.end(6)
}

// The terminal is restored when the supervisor is killed.
func TestTerminalIsRestoredWhenTheSupervisorIsKilled(t *testing.T) {
	p := newPod(t, sleeper)
	c := newConsole(t, p.caller("run", shell(t, "echo ready; exec sleep infinity", onTerminal), "app"), 24, 80)
	readUntil(t, c, "ready\r\n")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, c, "run: the pod's supervisor has gone\r\n")
	c.end(125)
}

// The command has ended, and its last output is on its way to a reader that does not read.
func TestASignalEndsAStuckRunAfterTheCommandsEnd(t *testing.T) {
	p := newPod(t, sleeper)
	// More than the caller's pipe holds, which run widens; the rest fits into the pipe before.
	cmd := p.caller("run", shell(t, "trap '' USR1; head -c 400000 /dev/zero; exit 5", onTerminal), "app")
	stuck, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	cmd.Stdout = stdout
	err = cmd.Start()
	stdout.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stuck.Read(make([]byte, 1)); err != nil { // the command runs
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var code int
	eventually(t, "a signal ends the call-in", func() bool {
		if err := cmd.Process.Signal(unix.SIGUSR1); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			code = exitCode(t, err)
			return true
		default:
			return false
		}
	})
	if want := 128 + int(unix.SIGUSR1); code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
}
