package tests

import (
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
	"kurma.io/stager/tests/harness"
)

// Several attachments type at once, and each sees all output; the others go on when one ends.
func TestAttachTypesAndShows(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	echo := suite.Shell("app", `while read line; do echo "got $line"; [ "$line" != end ] || exit 9; done`)
	p := b.Up("pod", harness.PodOf(echo.Annotated(names.StdinAnnotation, "stream")))
	one, two := p.Attach("app"), p.Attach("app")
	// Each is attached once it sees what it typed itself.
	one.Types("one\n")
	one.Sees("got one\n")
	two.Types("two\n")
	if line, err := two.Stdout.ReadString('\n'); err != nil || !strings.HasPrefix(line, "got ") {
		t.Fatalf("%q, %v", line, err)
	} else if line == "got one\n" {
		two.Sees("got two\n")
	}
	one.Sees("got two\n")
	if err := one.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, code := one.Ends(); rest != "" || code != 128+int(unix.SIGTERM) {
		t.Errorf("ended by SIGTERM: %q, exit status %d", rest, code)
	}
	two.Types("three\n")
	two.Sees("got three\n")
	three := p.Attach("app")
	three.Types("four\nend\n")
	if rest, code := three.Ends(); !strings.HasSuffix(rest, "got four\ngot end\n") || code != 9 {
		t.Errorf("at the app's end: %q, exit status %d", rest, code)
	}
	if rest, code := two.Ends(); rest != "got four\ngot end\n" || code != 9 {
		t.Errorf("at the app's end: %q, exit status %d", rest, code)
	}
	if text := p.Logs("app"); text != "got one\ngot two\ngot three\ngot four\ngot end\n" {
		t.Errorf("the log has %q", text)
	}
	if r := p.Launcher("attach", p.Name, "app"); r.Code != 125 || !strings.HasPrefix(r.Stderr, "attach: ") {
		t.Errorf("attach to an ended app: exit status %d, %q", r.Code, r.Stderr)
	}
}

// A stopped attachment stops neither the app, nor its log, nor another attachment.
func TestAStoppedAttachmentStopsNoOther(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"log": {"maxSize": "80Mi"}}`))
	app := suite.Shell("app", "while read line && [ $line != go ]; do echo $line; done; seq 6600000 | tr '\\n' ' '; echo last")
	p := b.Up("pod", harness.PodOf(app.Annotated(names.StdinAnnotation, "stream")))
	stuck := p.Attach("app")
	stuck.Types("stuck\n")
	stuck.Sees("stuck\n")
	reads := p.Attach("app")
	reads.Types("reads\n")
	reads.Sees("reads\n")
	if err := stuck.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	reads.Types("go\n")
	sum := sha512.New()
	sum.Write([]byte("stuck\nreads\n"))
	count, err := io.Copy(sum, reads.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	_, code := reads.Ends()
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	log := p.Logs("app")
	want := sha512.Sum512([]byte(log))
	if !bytes.Equal(sum.Sum(nil), want[:]) || count < 49<<20 {
		t.Errorf("the attached one saw %d bytes, and not the %d of the log", count, len(log))
	}
	if err := stuck.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if rest, code := stuck.Ends(); code != 124 || !strings.Contains(rest, "attach: dropped") {
		t.Errorf("exit status %d, and at its end %q", code, rest[max(0, len(rest)-200):])
	}
}

// Without an open stdin the app sees end of file, and attach goes on without input.
func TestAttachWithoutStdinGoesOn(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	stop := filepath.Join(dir, "stop")
	app := suite.Shell("app", "cat; echo end of file; while [ ! -e /sync/stop ]; do echo here; usleep 10000; done; echo error >&2; exit 4")
	p := b.Up("pod", harness.PodOf(app).HostVolume("sync", dir, "/sync"))
	p.Sees("app", "end of file\n")
	a := p.Attach("app")
	a.Types("ignored\n")
	a.Sees("here\n")
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rest, code := a.Ends(); strings.ReplaceAll(rest, "here\n", "") != "error\n" || code != 4 {
		t.Errorf("exit status %d, shown %q", code, rest)
	}
}

// attach to an app with a terminal passes the input and the size, and restores the caller's terminal.
func TestAttachRestoresTheCallersTerminal(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	app := suite.Shell("app", `trap 'stty size' WINCH; tty; while :; do read line && echo "got $line"; [ "$line" != end ] || exit 6; done`)
	p := b.Up("pod", harness.PodOf(app.Annotated(names.TTYAnnotation, "true")))
	p.Sees("app", "/dev/pts/")
	m := onTerminal(t, p.Command("attach", p.Name, "app"))
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
	m.isRestored()
}
