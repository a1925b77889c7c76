package tests

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// typist is a person at a terminal in which a command runs.
type typist struct {
	t        *testing.T
	cmd      *exec.Cmd
	terminal *os.File
	mu       sync.Mutex
	seen     strings.Builder // guarded by mu
	gone     chan struct{}   // closed when the terminal has shown all
}

// atTerminal starts a command of the launcher in a terminal of 24 lines of 100 characters.
func atTerminal(b *harness.Machine, args ...string) *typist {
	b.T.Helper()
	cmd := b.Command(args...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100})
	if err != nil {
		b.T.Fatal(err)
	}
	p := &typist{t: b.T, cmd: cmd, terminal: terminal, gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		_, _ = io.Copy(p, terminal) // EIO is a terminal's end
	}()
	b.T.Cleanup(func() { _ = terminal.Close() })
	return p
}

// Write implements io.Writer: the terminal shows it.
func (p *typist) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(data)
}

func (p *typist) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

// sees waits until the terminal has shown the text.
func (p *typist) sees(text string) {
	p.t.Helper()
	harness.Eventually(p.t, "the terminal shows "+text, func() bool { return strings.Contains(p.text(), text) })
}

func (p *typist) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.terminal, text); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the command's end and returns its exit status.
func (p *typist) ends() int {
	_ = p.cmd.Wait()
	<-p.gone
	return p.cmd.ProcessState.ExitCode()
}

// detaches types the detach keys, which end an attach without an error.
func (p *typist) detaches() {
	p.t.Helper()
	p.types(detachKeys)
	if code := p.ends(); code != 0 {
		p.t.Errorf("%s ended with %d: %s", p.cmd.Args, code, p.text())
	}
}

const detachKeys = "\x10\x11"

// run --interactive --tty is a session at the app's terminal, which has the caller's size from the start. The detach keys leave the pod running, attach comes
// back, and the app's end ends both with its exit code.
func TestASessionIsLeftAndTakenUpAgain(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	run := atTerminal(b, "run", "-it", "--name", "it", "kurma.io/stager/tests/busybox", "--", "-c",
		"stty size; while read line; do [ \"$line\" = size ] && stty size; echo \"<$line>\"; [ \"$line\" = end ] && exit 6; done")
	run.sees("ctrl-p ctrl-q leaves the pod running")
	run.sees("24 100\r\n")
	run.types("one\r")
	run.sees("<one>")
	run.types("size\r")
	run.sees("24 100\r\n")
	run.types(detachKeys)
	if code := run.ends(); code != 0 || !strings.Contains(run.text(), `pod "it" runs on`) {
		t.Errorf("exit status %d: %s", code, run.text())
	}
	if all := b.PS(); len(all) != 1 || all[0].State != "running" {
		t.Fatalf("%+v", all)
	}
	left := atTerminal(b, "attach", "it")
	left.sees("ctrl-p ctrl-q leaves the app running")
	left.types("two\r")
	left.sees("<two>")
	left.detaches()
	quick := atTerminal(b, "attach", "it")
	quick.sees("ctrl-p ctrl-q leaves the app running\r\n")
	quick.detaches() // before the call-in runs
	last := atTerminal(b, "attach", "it")
	last.sees("ctrl-p")
	last.types("three\r")
	last.sees("<three>")
	last.types("end\r")
	if code := last.ends(); code != 6 {
		t.Errorf("attach ended with %d, want the app's 6: %s", code, last.text())
	}
	if out := b.Must("wait", "it"); out != "6\n" {
		t.Errorf("wait: %q", out)
	}
}

// An app of a pod manifest gets its stdin and its terminal by the manifest's annotations, without options.
func TestAnnotationsOfAPodManifestOpenASession(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	app := func(name string) harness.AppDoc {
		return suite.Shell(name, `while :; do if [ -t 0 ]; then echo terminal; else echo none; fi; read line && echo "<$line>" || exec sleep 1000; done`)
	}
	p := b.Up("p", harness.PodOf(app("plain"), app("stdin").Annotated(names.StdinAnnotation, "stream"),
		app("tty").Annotated(names.StdinAnnotation, "stream").Annotated(names.TTYAnnotation, "true")))
	p.Sees("plain", "none")
	p.Sees("stdin", "none")
	p.Sees("tty", "terminal")
	stdin := p.Attach("stdin")
	stdin.Types("typed\n")
	p.Sees("stdin", "<typed>")
	left := atTerminal(b, "attach", "p", "tty")
	left.sees("ctrl-p ctrl-q leaves the app running\r\n")
	left.types("typed\r")
	left.sees("<typed>")
	left.detaches()
	if text := p.Logs("plain"); text != "none\n" {
		t.Errorf("an app without annotations has read %q", text)
	}
}

// At a terminal, attach says before anything else how it ends, also for an app without a terminal.
func TestAttachSaysHowItIsLeft(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	const ticks = "while :; do echo tick; sleep 0.05; done"
	p := b.Up("p", harness.PodOf(suite.Shell("plain", ticks), suite.Shell("tty", ticks).Annotated(names.TTYAnnotation, "true")))
	for _, tt := range []struct{ app, hint, keys string }{
		{"plain", "launcher: ctrl-c leaves the app running\r\n", "\x03"},
		{"tty", "launcher: ctrl-p ctrl-q leaves the app running\r\n", detachKeys},
	} {
		attached := atTerminal(b, "attach", "p", tt.app)
		attached.sees("tick")
		if text := attached.text(); !strings.HasPrefix(text, tt.hint) {
			t.Errorf("attach to %s begins with %q, want %q", tt.app, text, tt.hint)
		}
		attached.types(tt.keys)
		attached.ends()
		if p.Status()[tt.app].Exited {
			t.Errorf("%s does not run on", tt.app)
		}
	}
}

// The exit status of a session is the app's; input that is not a terminal is also passed on.
func TestRunInteractiveReturnsTheExitStatus(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	run := atTerminal(b, "run", "-it", "--rm", "kurma.io/stager/tests/busybox", "--", "-c", "read line; exit $line")
	run.sees("ctrl-p")
	run.types("7\r")
	if code := run.ends(); code != 7 {
		t.Errorf("exit status %d: %s", code, run.text())
	}
	cmd := b.Command("run", "--interactive", "--rm", "kurma.io/stager/tests/busybox", "--", "-c", "read line; echo \"<$line>\"; exit 8")
	cmd.Stdin = strings.NewReader("from a pipe\n")
	if r := harness.Finish(t, cmd); r.Code != 8 || r.Stdout != "<from a pipe>\n" {
		t.Errorf("%+v", r)
	}
	for _, input := range []io.Reader{strings.NewReader("all of\nit"), nil} { // nil is the null device
		cmd := b.Command("run", "-i", "--rm", "kurma.io/stager/tests/busybox", "--", "-c", "cat; exit 9")
		cmd.Stdin = input
		want := ""
		if input != nil {
			want = "all of\nit"
		}
		if r := harness.Finish(t, cmd); r.Code != 9 || r.Stdout != want {
			t.Errorf("input to its end: %+v", r)
		}
	}
	if all := b.PS(); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}

// The detach keys end a command of exec -it.
func TestDetachKeysEndACommand(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	run := atTerminal(b, "exec", "-it", "p", "--", "/bin/sh", "-c", "echo up; exec sleep 999")
	run.sees("ctrl-p ctrl-q ends the command")
	run.sees("up\r\n")
	run.types(detachKeys)
	if code := run.ends(); code != 137 {
		t.Errorf("exit status %d: %s", code, run.text())
	}
	harness.Eventually(t, "the command has ended", func() bool {
		r := p.Exec("a", "/bin/sh", "-c", "ps | grep -c '[s]leep 999'")
		return r.Stdout == "0\n"
	})
}

// Nothing is written before the last question is answered: ctrl-c ends the command there.
func TestTheQuestionAboutAKeyIsInterrupted(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	add := atTerminal(b, "trust", "add", os.Getenv("STAGER_ACI")+".pub")
	add.sees("[y/N]")
	add.types("\x03")
	_ = add.ends()
	if status := add.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGINT {
		t.Errorf("%v, %s", add.cmd.ProcessState, add.text())
	}
}
