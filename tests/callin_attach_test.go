package tests

import (
	"bufio"
	"bytes"
	"crypto/sha512"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// attached is a run of attach with a pipe as its input and one as its output.
type attached struct {
	t      *testing.T
	stdin  io.WriteCloser
	stdout *bufio.Reader
	wait   func() error
	signal func(os.Signal) error
	code   func() int
}

// attach attaches to an app as a daemon does it.
func (p *pod) attach(app string) *attached {
	p.t.Helper()
	cmd := p.callIn("attach", app)
	stdin, inErr := cmd.StdinPipe()
	out, theirs, outErr := os.Pipe()
	if inErr != nil || outErr != nil {
		p.t.Fatal(inErr, outErr)
	}
	cmd.Stdout, cmd.Stderr = theirs, theirs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	theirs.Close()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		out.Close()
	})
	return &attached{
		t: p.t, stdin: stdin, stdout: bufio.NewReaderSize(out, 1<<16),
		wait: cmd.Wait, signal: cmd.Process.Signal, code: func() int { return cmd.ProcessState.ExitCode() },
	}
}

func (a *attached) types(text string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, text); err != nil {
		a.t.Fatal(err)
	}
}

func (a *attached) sees(want string) {
	a.t.Helper()
	have := make([]byte, len(want))
	if _, err := io.ReadFull(a.stdout, have); err != nil || string(have) != want {
		a.t.Fatalf("it shows %q, want %q: %v", have, want, err)
	}
}

// ends reads the rest and returns it with the exit status.
func (a *attached) ends() (rest string, code int) {
	a.t.Helper()
	text, err := io.ReadAll(a.stdout)
	if err != nil {
		a.t.Fatal(err)
	}
	_ = a.wait() // its status is the answer
	return string(text), a.code()
}

// annotated returns the app with an annotation added.
func (a appDoc) annotated(name, value string) appDoc {
	a.Annotations = append(a.Annotations, nameValue{name, value})
	return a
}

// Several attachments type at once, and each sees all output; the others go on when one ends.
func TestAttachTypesAndShows(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	echo := shell("app", `while read line; do echo "got $line"; [ "$line" != end ] || exit 9; done`)
	p := b.up("pod", podOf(echo.annotated(names.StdinAnnotation, "stream")))
	one, two := p.attach("app"), p.attach("app")
	// Each is attached once it sees what it typed itself.
	one.types("one\n")
	one.sees("got one\n")
	two.types("two\n")
	if line, err := two.stdout.ReadString('\n'); err != nil || !strings.HasPrefix(line, "got ") {
		t.Fatalf("%q, %v", line, err)
	} else if line == "got one\n" {
		two.sees("got two\n")
	}
	one.sees("got two\n")
	if err := one.signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, code := one.ends(); rest != "" || code != 128+int(unix.SIGTERM) {
		t.Errorf("ended by SIGTERM: %q, exit status %d", rest, code)
	}
	two.types("three\n")
	two.sees("got three\n")
	three := p.attach("app")
	three.types("four\nend\n")
	if rest, code := three.ends(); !strings.HasSuffix(rest, "got four\ngot end\n") || code != 9 {
		t.Errorf("at the app's end: %q, exit status %d", rest, code)
	}
	if rest, code := two.ends(); rest != "got four\ngot end\n" || code != 9 {
		t.Errorf("at the app's end: %q, exit status %d", rest, code)
	}
	if text := p.logs("app"); text != "got one\ngot two\ngot three\ngot four\ngot end\n" {
		t.Errorf("the log has %q", text)
	}
	if r := p.launcher("attach", p.name, "app"); r.code != 125 || !strings.HasPrefix(r.stderr, "attach: ") {
		t.Errorf("attach to an ended app: exit status %d, %q", r.code, r.stderr)
	}
}

// A stopped attachment stops neither the app, nor its log, nor another attachment.
func TestAStoppedAttachmentStopsNoOther(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"log": {"maxSize": "80Mi"}}`))
	app := shell("app", "while read line && [ $line != go ]; do echo $line; done; seq 6600000 | tr '\\n' ' '; echo last")
	p := b.up("pod", podOf(app.annotated(names.StdinAnnotation, "stream")))
	stuck := p.attach("app")
	stuck.types("stuck\n")
	stuck.sees("stuck\n")
	reads := p.attach("app")
	reads.types("reads\n")
	reads.sees("reads\n")
	if err := stuck.signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	reads.types("go\n")
	sum := sha512.New()
	sum.Write([]byte("stuck\nreads\n"))
	count, err := io.Copy(sum, reads.stdout)
	if err != nil {
		t.Fatal(err)
	}
	_, code := reads.ends()
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	log := p.logs("app")
	want := sha512.Sum512([]byte(log))
	if !bytes.Equal(sum.Sum(nil), want[:]) || count < 49<<20 {
		t.Errorf("the attached one saw %d bytes, and not the %d of the log", count, len(log))
	}
	if err := stuck.signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if rest, code := stuck.ends(); code != 124 || !strings.Contains(rest, "attach: dropped") {
		t.Errorf("exit status %d, and at its end %q", code, rest[max(0, len(rest)-200):])
	}
}

// Without an open stdin the app sees end of file, and attach goes on without input.
func TestAttachWithoutStdinGoesOn(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("sync", 0o777)
	stop := filepath.Join(dir, "stop")
	app := shell("app", "cat; echo end of file; while [ ! -e /sync/stop ]; do echo here; usleep 10000; done; echo error >&2; exit 4")
	p := b.up("pod", podOf(app).hostVolume("sync", dir, "/sync"))
	p.sees("app", "end of file\n")
	a := p.attach("app")
	a.types("ignored\n")
	a.sees("here\n")
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rest, code := a.ends(); strings.ReplaceAll(rest, "here\n", "") != "error\n" || code != 4 {
		t.Errorf("exit status %d, shown %q", code, rest)
	}
}

// attach to an app with a terminal passes the input and the size, and restores the caller's terminal.
func TestAttachRestoresTheCallersTerminal(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	app := shell("app", `trap 'stty size' WINCH; tty; while :; do read line && echo "got $line"; [ "$line" != end ] || exit 6; done`)
	p := b.up("pod", podOf(app.annotated(names.TTYAnnotation, "true")))
	p.sees("app", "/dev/pts/")
	m := onTerminal(t, p.command("attach", p.name, "app"))
	before := m.mode()
	m.sees("30 100\r\n")
	m.types("hello\r")
	m.sees("got hello\r\n")
	if err := pty.Setsize(m.master, &pty.Winsize{Cols: 66, Rows: 22}); err != nil {
		t.Fatal(err)
	}
	m.sees("22 66\r\n")
	m.types("end\r")
	m.sees("got end\r\n")
	if code := m.ends(); code != 6 {
		t.Errorf("exit status %d", code)
	}
	if after := m.mode(); after != before {
		t.Errorf("the terminal's mode is %o, was %o", after, before)
	}
}
