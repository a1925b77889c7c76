package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens both ends of a new terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master = must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number := must(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN))
	return master, must(os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(number)), os.O_RDWR|unix.O_NOCTTY, 0))
}

// onTerminal runs the launcher with a terminal as stdout, and returns what the terminal has received.
func (h *host) onTerminal(args ...string) string {
	h.t.Helper()
	master, slave := openTerminal(h.t)
	defer master.Close()
	cmd := h.command(args...)
	cmd.Env = append(cmd.Env, "NO_COLOR=1")
	cmd.Stdout = slave
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	_ = slave.Close()
	text, _ := io.ReadAll(master) // it ends with EIO when the program has closed the terminal
	if err := cmd.Wait(); err != nil {
		h.t.Fatalf("launcher %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// An app cannot make an operator's terminal obey it by its log; pipes get every byte.
func TestLogsOnATerminalShowControlCharacters(t *testing.T) {
	const when, raw = "2026-11-21T03:00:01.000000000Z", "tab\t\x1b]0;title\x07\x1b[31mred\r\x00\x7f\u009b\x9bé"
	const shown = "tab\t" + `\x1b]0;title\x07\x1b[31mred\x0d\x00\x7f\xc2\x9b\x9bé`
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", h.text("two.json", `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[
		{"name":"a","image":{"name":"example.com/one"}},{"name":"b","image":{"name":"example.com/one"}}]}`)))
	h.run("stop", "p")
	pod := filepath.Join(h.dir, "pods", uuid)
	for _, app := range []string{"a", "b"} {
		folder := filepath.Join(pod, "logs", app)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		h.text(filepath.Join("pods", uuid, "logs", app, "0000000001.log"), when+" stdout F "+raw+"\n")
	}
	h.text(filepath.Join("pods", uuid, "stager.log"), raw+"\n")
	for _, tt := range []struct{ args, prefix string }{
		{"p a", ""}, {"--timestamps p a", when + " "}, {"--follow p a", ""}, {"--until 0s p a", ""}, {"--stager p", ""},
	} {
		args := append([]string{"logs"}, strings.Fields(tt.args)...)
		if got := h.onTerminal(args...); got != tt.prefix+shown+"\n" {
			t.Errorf("logs %s on a terminal: %q, want %q", tt.args, got, shown)
		}
		if got := h.onTerminal(append(args, "--raw")...); got != tt.prefix+raw+"\n" {
			t.Errorf("logs --raw %s on a terminal: %q, want %q", tt.args, got, raw)
		}
		if got := h.run(args...); got != tt.prefix+raw+"\n" {
			t.Errorf("logs %s to a pipe: %q, want %q", tt.args, got, raw)
		}
	}
	want := "a | " + shown + "\nb | " + shown + "\n"
	for _, args := range [][]string{{"logs", "p"}, {"logs", "--follow", "--stream", "stdout", "p"}} {
		if got := h.onTerminal(args...); len(got) != len(want) || !strings.Contains(got, "a | "+shown+"\n") || !strings.Contains(got, "b | "+shown+"\n") {
			t.Errorf("%s on a terminal: %q, want %q", args, got, want)
		}
	}
	h.run("rm", "p")
}
