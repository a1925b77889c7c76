package callins

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// script is an app that opens the fifo "gate" first: it begins, in front of a test's
// eyes, once the test opens it for writing.
func script(name, gate, text string) testApp {
	return testApp{Name: name, OpenStdin: true, Args: []string{"/bin/sh", "-c", "read x <" + gate + "\n" + text}}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, gate string) {
	t.Helper()
	var f *os.File
	eventually(t, "the app opens its gate", func() bool {
		var err error
		f, err = os.OpenFile(gate, os.O_WRONLY|unix.O_NONBLOCK, 0) // ENXIO without a reader (fifo(7))
		if err != nil && !errors.Is(err, unix.ENXIO) {
			t.Fatal(err)
		}
		return err == nil
	})
	defer f.Close()
	if _, err := f.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
}

// attached is an attach that has the app's streams, with its output on pipes.
type attached struct {
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr io.Reader
}

// attachTo starts a caller; it may not be attached yet.
func attachTo(t *testing.T, p *testPod, app string) *attached {
	t.Helper()
	a := &attached{cmd: p.caller("attach", "", app)}
	var err error
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if a.stdout, err = a.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if a.stderr, err = a.cmd.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return a
}

// ask types a line and reads the app's answer, so the caller is attached.
func (a *attached) ask(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(a.stdin, line+"\n"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, a.stdout, "got "+line+"\n")
}

// end waits for the rest of the output and the exit.
func (a *attached) end(t *testing.T) result {
	t.Helper()
	stdout, err := io.ReadAll(a.stdout)
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := io.ReadAll(a.stderr)
	if err != nil {
		t.Fatal(err)
	}
	return result{string(stdout), string(stderr), exitCode(t, a.cmd.Wait())}
}

// answering is an app that answers lines until "end".
func answering(last string) testApp {
	return testApp{Name: "app", OpenStdin: true, Args: []string{
		"/bin/sh", "-c",
		`while read line && [ "$line" != end ]; do echo "got $line"; done; ` + last,
	}}
}

func TestSeveralCallersAttachToOneApp(t *testing.T) {
	p := newPod(t, answering("echo out; echo err >&2; exit 42"))
	a, b := attachTo(t, p, "app"), attachTo(t, p, "app")
	a.ask(t, "one") // both are attached after each has been answered
	b.ask(t, "two")
	b.stdin.Close() // ends its input, neither the app's nor the attachment
	a.ask(t, "three")
	io.WriteString(a.stdin, "end\n")
	readUntil(t, b.stdout, "got three\n")
	want := result{"out\n", "err\n", 42}
	for _, caller := range []*attached{a, b} {
		if diff := cmp.Diff(want, caller.end(t)); diff != "" {
			t.Errorf("attach (-want +got):\n%s", diff)
		}
	}
}

func TestAnAppOutlivesItsAttachments(t *testing.T) {
	p := newPod(t, answering(""))
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGKILL} {
		a := attachTo(t, p, "app")
		a.ask(t, sig.String())
		if err := a.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := a.end(t); got.Code != 128+int(sig) || got.Stderr != "" {
			t.Errorf("%v: %+v", sig, got)
		}
	}
	a := attachTo(t, p, "app")
	a.ask(t, "still there")
	io.WriteString(a.stdin, "end\n")
	if got := a.end(t); got.Code != 0 {
		t.Errorf("attach: %+v", got)
	}
}

func TestAttachIsRefusedWithoutARunningApp(t *testing.T) {
	p := newPod(t, sleeper, testApp{Name: "ended", Args: []string{"/bin/true"}})
	p.awaitEnded(1)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no such app", []string{"x"}, "attach: app \"x\": no such app\n"},
		{"ended", []string{"ended"}, "attach: app \"ended\": app is not running\n"},
		{"no argument", nil, "attach: want one argument, the app's name, have 0\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := result{Stderr: test.want, Code: 125}
			if diff := cmp.Diff(want, finish(t, p.caller("attach", "", test.args...))); diff != "" {
				t.Errorf("attach (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAttachIgnoresInput: an app without open stdin does not get the caller's, and
// the caller's is not waited for.
func TestAttachIgnoresInput(t *testing.T) {
	gate := fifo(t)
	app := script("app", gate, "cat; echo out; exit 3")
	app.OpenStdin = false
	p := newPod(t, app)
	a := attachTo(t, p, "app")
	io.WriteString(a.stdin, "ignored\n")
	awaitAttached(t, a)
	open(t, gate)
	if diff := cmp.Diff(result{"out\n", "", 3}, a.end(t)); diff != "" {
		t.Errorf("attach (-want +got):\n%s", diff)
	}
}

// awaitAttached returns once the caller holds the pipes of the app's output: more than its
// own three and the socket.
func awaitAttached(t *testing.T, a *attached) {
	t.Helper()
	pipes := func() int {
		n := 0
		links, err := os.ReadDir("/proc/" + strconv.Itoa(a.cmd.Process.Pid) + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			target, _ := os.Readlink("/proc/" + strconv.Itoa(a.cmd.Process.Pid) + "/fd/" + link.Name())
			if strings.HasPrefix(target, "pipe:") {
				n++
			}
		}
		return n
	}
	eventually(t, "the caller has the app's pipes", func() bool { return pipes() >= 5 })
}

// A caller that does not read is dropped, and neither the app nor
// another caller notices. The app waits for the other one after each burst, of less than the
// supervisor holds without a time limit, so that a busy machine makes no difference.
func TestACallerThatDoesNotReadIsDropped(t *testing.T) {
	const bursts, size = 16, 3_000_000
	gate := fifo(t)
	p := newPod(t, script("app", gate, fmt.Sprintf("for i in $(seq %d); do head -c %d /dev/zero; read x <%s; done; exit 4", bursts, size, gate)))
	slow, quick := attachTo(t, p, "app"), attachTo(t, p, "app")
	awaitAttached(t, slow)
	awaitAttached(t, quick)
	for range bursts {
		open(t, gate)
		if _, err := io.CopyN(io.Discard, quick.stdout, size); err != nil {
			t.Fatal(err)
		}
	}
	open(t, gate)
	if got := quick.end(t); got.Code != 4 || got.Stderr != "" {
		t.Errorf("the quick caller: %+v, want code 4", got)
	}
	if code := exitCode(t, slow.cmd.Wait()); code != exitDropped {
		t.Errorf("the slow caller has exit code %d, want %d", code, exitDropped)
	}
}

// A caller without an output, such as that of launcher run --interactive, does not lose the input for what the app writes.
func TestACallerThatWantsNoOutputIsNotDropped(t *testing.T) {
	begin, attached, stopped := fifo(t), fifo(t), fifo(t)
	app := script("app", begin, fmt.Sprintf("read line; read x <%s; read x <%s; head -c 20000000 /dev/zero; exit 4", attached, stopped))
	app.OpenStdin = true
	p := newPod(t, app)
	cmd := p.caller("attach", "", "app") // stdout and stderr are the null device
	cmd.Stdin = strings.NewReader("a line\n")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	open(t, begin)
	open(t, attached) // the app has read the line
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	open(t, stopped)
	p.awaitEnded(1)
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
}

// The app has ended, and its last output is on its way to a reader that does not read.
func TestASignalEndsAStuckAttachAfterTheAppsEnd(t *testing.T) {
	gate := fifo(t)
	// It fits into the pipes between, so the supervisor does not drop the caller.
	p := newPod(t, script("app", gate, "head -c 400000 /dev/zero; exit 4"))
	a := attachTo(t, p, "app")
	awaitAttached(t, a)
	open(t, gate)
	p.awaitEnded(1)
	if err := a.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, a.cmd.Wait()); code != 128+int(unix.SIGTERM) {
		t.Errorf("exit code %d, want %d", code, 128+int(unix.SIGTERM))
	}
}

func TestADroppedCallerReportsIt(t *testing.T) {
	gate := fifo(t)
	p := newPod(t, script("app", gate, "seq 6000000"))
	a := attachTo(t, p, "app")
	awaitAttached(t, a)
	open(t, gate)
	message, err := io.ReadAll(a.stderr)
	if want := "attach: dropped, because the output was not read in time\n"; err != nil || string(message) != want {
		t.Errorf("message %q, %v, want %q", message, err, want)
	}
	exitCode(t, a.cmd.Wait())
}

// A caller that is attached before the first byte reads all to the last one.
func TestAttachReceivesTheFirstAndTheLastByte(t *testing.T) {
	for range 20 {
		gate := fifo(t)
		p := newPod(t, script("app", gate, "printf last; exit 1"))
		a := attachTo(t, p, "app")
		awaitAttached(t, a)
		open(t, gate)
		if diff := cmp.Diff(result{"last", "", 1}, a.end(t)); diff != "" {
			t.Fatalf("attach (-want +got):\n%s", diff)
		}
	}
}

func TestAttachEndsWithThePod(t *testing.T) {
	p := newPod(t, answering(""))
	a := attachTo(t, p, "app")
	a.ask(t, "x")
	stalled := rawCall(t, p) // must not prevent the pod from ending
	defer stalled.Close()
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := a.end(t); got.Code != 143 && got.Code != 137 {
		t.Errorf("attach: %+v, want the app's end", got)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("pod: %v", err)
	}
}

func TestAttachConnectsTheCallersTerminal(t *testing.T) {
	// The app's terminal takes the caller's size before or after the app looks.
	text := `until [ "$(stty size)" = "33 111" ]; do sleep 0.01; done; trap 'stty size' WINCH; trap 'exit 5' INT; stty size
		while :; do read line && echo "got $line"; done`
	p := newPod(t, testApp{Name: "app", Terminal: true, Args: []string{"/bin/sh", "-c", text}})
	c := newConsole(t, p.caller("attach", "", "app"), 33, 111)
	readUntil(t, c, "33 111\r\n")
	c.WriteString("words\r")
	readUntil(t, c, "words\r\ngot words\r\n")
	c.resize(44, 122)
	readUntil(t, c, "44 122\r\n")
	c.WriteString("\x03\r")
	c.end(5)
}

func TestAttachRestoresTheCallersTerminal(t *testing.T) {
	p := newPod(t, testApp{Name: "app", Terminal: true, Args: []string{"/bin/cat"}})
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		c := newConsole(t, p.caller("attach", "", "app"), 24, 80)
		c.WriteString("x" + sig.String() + "\r")
		readUntil(t, c, "\r\nx"+sig.String()+"\r\n")
		if err := c.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		c.end(128 + int(sig))
	}
}
