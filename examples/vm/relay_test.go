package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"kurma.io/stager/examples/vm/line"
	"kurma.io/stager/tests/surroundings"
)

// patience bounds every wait: long past it something hangs.
const patience = 60 * time.Second

// socketVariable has this test program call run at the socket that it names.
const socketVariable = "RELAY_TEST_SOCKET"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == callRole { // "guest run SCRIPT": a call-in that is a shell
		err := syscall.Exec("/bin/sh", []string{"sh", "-c", os.Args[2]}, os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	if socket := os.Getenv(socketVariable); socket != "" {
		os.Exit(call(socket, os.Args[1]))
	}
	surroundings.Settle()
	os.Exit(m.Run())
}

// call is run's caller.
func call(socket, script string) int {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 98
	}
	code, err := relayCall(conn, "run", []string{script})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// relayed is a hub and a guest that is this process: all of the way that a call-in
// takes, but for the virtual machine.
type relayed struct {
	t      *testing.T
	socket string
	guest  *line.Line
}

func newRelayed(t *testing.T) *relayed {
	t.Helper()
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.FileConn(theirs)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	r := &relayed{t: t, socket: filepath.Join(t.TempDir(), "s")}
	outside := line.New(ours, line.EndA, nil)
	r.guest = line.New(other, line.EndB, func(ch *line.Channel, text []byte) {
		var req request
		if err := json.Unmarshal(text, &req); err != nil {
			t.Error(err)
		}
		answer(ch, req)
	})
	go func() { _ = outside.Serve() }()
	go func() { _ = r.guest.Serve() }()
	listener, err := listen(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{guest: outside, slots: make(chan struct{}, maxCalls)}
	go h.serve(listener)
	t.Cleanup(func() { listener.Close(); outside.Close() })
	return r
}

// command is a caller of a script in the guest.
func (r *relayed) command(script string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", script)
	cmd.Env = append(os.Environ(), socketVariable+"="+r.socket)
	return cmd
}

type outcome struct {
	stdout, stderr string
	code           int
}

func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	if !late.Stop() {
		t.Fatalf("%s hangs: %s%s", cmd.Args, stdout.String(), stderr.String())
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func TestCallInIsRelayed(t *testing.T) {
	r := newRelayed(t)
	input := make([]byte, 1<<20+3)
	_, _ = rand.Read(input)
	cmd := r.command("cat; echo problem >&2; exit 7")
	cmd.Stdin = bytes.NewReader(input)
	if got := finish(t, cmd); got.code != 7 || got.stderr != "problem\n" || got.stdout != string(input) {
		t.Errorf("%d, %q, %d bytes", got.code, got.stderr, len(got.stdout))
	}
	if got := finish(t, r.command("kill -TERM $$")); got.code != 128+int(syscall.SIGTERM) {
		t.Errorf("a call-in that is killed: %+v", got)
	}
	if got := finish(t, r.command("cat <&3")); got.code == 0 {
		t.Errorf("descriptor 3 is there though none was passed: %+v", got)
	}
	cmd = r.command("cat <&3")
	settings, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "settings")
	w.Close()
	cmd.ExtraFiles = []*os.File{settings}
	if got := finish(t, cmd); got.code != 0 || got.stdout != "settings" {
		t.Errorf("descriptor 3: %+v", got)
	}
}

func TestProcessThatIsLeftBehindKeepsNoCaller(t *testing.T) {
	r := newRelayed(t)
	got := finish(t, r.command("echo $$; sleep 1000 & echo $!; seq 1 30000"))
	lines := strings.SplitN(got.stdout, "\n", 3)
	if got.code != 0 || len(lines) != 3 || !strings.HasSuffix(lines[2], "\n30000\n") {
		t.Fatalf("%d, %d bytes", got.code, len(got.stdout))
	}
	left, err := strconv.Atoi(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(left, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// started starts a call-in that prints "up" when it runs.
func started(t *testing.T, cmd *exec.Cmd) io.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { late.Stop(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	up := make([]byte, 3)
	if _, err := io.ReadFull(out, up); err != nil || string(up) != "up\n" {
		t.Fatalf("%q, %v", up, err)
	}
	return out
}

func TestSignalsAreRelayed(t *testing.T) {
	r := newRelayed(t)
	cmd := r.command("trap 'echo caught; exit 3' USR2; echo up; while :; do sleep 0.01; done")
	out := started(t, cmd)
	if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	_ = cmd.Wait()
	if string(rest) != "caught\n" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%q, %d", rest, cmd.ProcessState.ExitCode())
	}
}

func TestCallInOfACallerThatIsKilledIsKilled(t *testing.T) {
	r := newRelayed(t)
	// The call-in has the only write end of a pipe but ours.
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := r.command("exec 9>" + fifo + "; echo up; while :; do sleep 0.01 9>&-; done")
	held := make(chan []byte, 1)
	go func() {
		text, _ := os.ReadFile(fifo)
		held <- text
	}()
	started(t, cmd)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-held:
	case <-time.After(patience):
		t.Error("the call-in still runs")
	}
}

func TestTerminalIsRelayed(t *testing.T) {
	r := newRelayed(t)
	cmd := r.command("stty size; tty <&1 >/dev/null && echo terminal; read -r word; echo read $word; trap 'stty size; exit 4' WINCH; echo go; while :; do sleep 0.01; done")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 77, Rows: 11})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	shown := ""
	see := func(text string) {
		t.Helper()
		buf := make([]byte, 1024)
		for !strings.Contains(shown, text) {
			n, err := terminal.Read(buf)
			shown += string(buf[:n])
			if err != nil {
				t.Fatalf("%q and %v, want %q", shown, err, text)
			}
		}
	}
	see("11 77")
	see("terminal")
	fmt.Fprint(terminal, "typed\n")
	see("read typed")
	see("go")
	if err := pty.Setsize(terminal, &pty.Winsize{Cols: 33, Rows: 22}); err != nil {
		t.Fatal(err)
	}
	see("22 33")
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("exit status %d", cmd.ProcessState.ExitCode())
	}
}

func TestCallerReceivesTheGuestsEnd(t *testing.T) {
	r := newRelayed(t)
	cmd := r.command("echo up; sleep 1000")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	started(t, cmd)
	r.guest.Close()
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != exitFailed || stderr.String() != errDied.Error()+"\n" {
		t.Errorf("%d, %q", cmd.ProcessState.ExitCode(), stderr.String())
	}
	if got := finish(t, r.command("true")); got.code != exitFailed || got.stderr != errDied.Error()+"\n" {
		t.Errorf("a later caller: %+v", got)
	}
}

func TestHostileCallerHarmsNoOther(t *testing.T) {
	r := newRelayed(t)
	for _, text := range []string{"garbage of more than a header", strings.Repeat("\xff", 1<<16)} {
		conn, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text)) // the hub may have closed it already
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || os.IsTimeout(err) {
			t.Errorf("%d bytes, %v, want the end", n, err)
		}
		conn.Close()
	}
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	l := line.New(conn, line.EndA, nil)
	go func() { _ = l.Serve() }()
	ch, err := l.Open([]byte(`{"use":"pod"}`))
	if err != nil {
		t.Fatal(err)
	}
	<-ch.Done()
	if text, err := ch.Result(); err != nil || !strings.Contains(string(text), "not the request of a call-in") {
		t.Errorf("a caller as the stager: %s, %v", text, err)
	}
	l.Close()
	if got := finish(t, r.command("echo fine")); got.stdout != "fine\n" {
		t.Errorf("%+v", got)
	}
}
