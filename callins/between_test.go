package callins

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// shellCaller is a shell, to be run on a terminal, whose script makes the call "$0" app with
// the settings on descriptor 3.
func (p *testPod) shellCaller(script, settings string) *exec.Cmd {
	p.t.Helper()
	cmd := p.caller("run", settings)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, cmd.Path}
	return cmd
}

// A command that has not asked for a terminal has none, whichever of its caller's streams is one.
func TestCallersTerminalIsNotTheCommands(t *testing.T) {
	p := newPod(t, sleeper)
	script := `for i in 0 1 2; do test -t $i && exit 9; done; echo none; exit 4`
	for _, redirection := range []string{"", "</dev/null", ">&2 2>/dev/null", "</dev/null 2>/dev/null", "2>&1 | cat; exit 4"} {
		t.Run(redirection, func(t *testing.T) {
			c := newConsole(t, p.shellCaller(`"$0" app `+redirection, shell(t, strings.Replace(script, "echo", "echo >&2; echo", 1))), 24, 80)
			if !strings.Contains(redirection, ">&2 2>/dev/null") {
				readUntil(t, c, "none\r\n")
			}
			c.end(4)
		})
	}
}

// The test leaves a process behind that reads the command's stdin, and types
// lines for the caller's shell.
func TestWhatIsTypedAfterTheCommandStaysTheCallers(t *testing.T) {
	const lines = 12
	p := newPod(t, sleeper)
	command := shell(t, `exec 4<&0
		cat <&4 >/dev/null 2>&1 &
		until grep -q cat /proc/$!/comm && grep -q 'State:.S' /proc/$!/status; do :; done # it reads
		exit 4`)
	c := newConsole(t, p.shellCaller(`"$0" app; echo ended $?; while read line; do echo "<$line>"; done; exit 5`, command), 24, 80)
	readUntil(t, c, "ended 4\r\n")
	for i := range lines {
		fmt.Fprintf(c, "%d\n", i)
		readUntil(t, c, fmt.Sprintf("<%d>\r\n", i))
	}
	c.WriteString("\x04")
	c.end(5)
}

func TestTypedInputAndItsEndReachTheCommand(t *testing.T) {
	p := newPod(t, sleeper)
	c := newConsole(t, p.caller("run", shell(t, "read line; echo got $line; cat; echo end; exit 6"), "app"), 24, 80)
	c.WriteString("words\n")
	readUntil(t, c, "got words\r\n")
	c.WriteString("more\n")
	readUntil(t, c, "more\r\nmore\r\n") // the terminal's echo, then cat's
	c.WriteString("\x04")
	readUntil(t, c, "end\r\n")
	c.end(6)
}

// All that the command has written is on the terminal before the call-in ends, in its order.
func TestTheLastOutputIsOnTheCallersTerminal(t *testing.T) {
	p := newPod(t, sleeper)
	var want bytes.Buffer
	for i := range 20000 {
		want.WriteString(strconv.Itoa(i+1) + "\r\n")
	}
	var both strings.Builder
	for range 200 {
		both.WriteString("out\r\nerr\r\n")
	}
	for script, want := range map[string]string{
		"seq 20000; exit 5":                  want.String(),
		"sleep infinity & seq 20000; exit 5": want.String(),
		"seq 20000 >&2; exit 5":              want.String(),
		"printf last; exit 5":                "last",
		"for i in $(seq 200); do echo out; echo err >&2; done; exit 5": both.String(),
	} {
		t.Run(script, func(t *testing.T) {
			cmd := p.caller("run", shell(t, script), "app")
			master, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			tty.Close()
			got, _ := io.ReadAll(master) // up to EIO, when the call-in has ended
			if code := exitCode(t, cmd.Wait()); code != 5 || string(got) != want {
				t.Errorf("exit code %d, %d bytes, want 5, %d bytes", code, len(got), len(want))
			}
		})
	}
}

// A call-in in the background of its terminal neither stops nor takes the foreground's input; in
// the foreground it reads.
func TestACallerInTheBackgroundReadsNoInput(t *testing.T) {
	p := newPod(t, sleeper)
	script := `set -m; "$0" app & read go; echo shell $go; fg %1 >/dev/null; echo status $?`
	c := newConsole(t, p.shellCaller(script, shell(t, "echo started; read x; echo command $x; exit 7")), 24, 80)
	readUntil(t, c, "started\r\n")
	c.WriteString("go\n")
	readUntil(t, c, "shell go\r\n")
	c.WriteString("words\n")
	readUntil(t, c, "command words\r\n")
	readUntil(t, c, "status 7\r\n")
	c.end(0)
}

// Few programs expect anything else of their stdio.
func TestTheCommandsPipesBlock(t *testing.T) {
	p := newPod(t, sleeper)
	command := shell(t, "grep flags /proc/self/fdinfo/0 /proc/self/fdinfo/1")
	c := newConsole(t, p.shellCaller(`"$0" app`, command), 24, 80)
	readUntil(t, c, "/proc/self/fdinfo/0:flags:\t00\r\n/proc/self/fdinfo/1:flags:\t01\r\n")
	c.end(0)
}
