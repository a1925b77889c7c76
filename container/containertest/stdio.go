package containertest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"kurma.io/stager/spec"
)

func stdioCases() []testCase {
	return []testCase{
		{"descriptors that are files", stdioFiles},
		{"descriptors that are nil are /dev/null", stdioNull},
		{"descriptors that are nil are the container's own", stdioOwnNull},
		{"a user opens its pipes again", stdioAgain},
		{"no other descriptor is open", noOtherDescriptor},
		{"files from descriptor 3 on", passedFiles},
		{"LISTEN_PID is the app's own number", listenPID},
		{"a terminal", terminal},
	}
}

func stdioFiles(b *bench) {
	for _, how := range []string{"app", "command"} {
		in, err := os.CreateTemp(b.dir, "in")
		must(b.t, err)
		out, err := os.CreateTemp(b.dir, "out")
		must(b.t, err)
		errs, err := os.CreateTemp(b.dir, "err")
		must(b.t, err)
		_, err = in.WriteAt([]byte("words\n"), 0)
		must(b.t, err)
		stdio := spec.Stdio{Stdin: in, Stdout: out, Stderr: errs}
		const script = "cat; echo bad >&2"
		var child spec.Running
		if how == "app" {
			child = b.start(b.sh(script), stdio).main
		} else if child, err = b.start(b.spec("sleep", "1000"), spec.Stdio{}).tryExec(command("sh", "-c", script), stdio); err != nil {
			b.t.Fatal(err)
		}
		_, err = wait(child)
		must(b.t, errors.Join(err, in.Close(), out.Close(), errs.Close()))
		gotOut, err := os.ReadFile(out.Name())
		must(b.t, err)
		gotErr, err := os.ReadFile(errs.Name())
		must(b.t, err)
		if string(gotOut) != "words\n" || string(gotErr) != "bad\n" {
			b.t.Errorf("the %s's stdout has %q, its stderr %q", how, gotOut, gotErr)
		}
	}
}

func stdioNull(b *bench) {
	for how, got := range nullDevices(b, "%t:%T") {
		if got != "1:3\n1:3\n1:3\n" {
			b.t.Errorf("the %s has %q", how, got)
		}
	}
}

// A process of user 0 changes the mode of what it holds.
func stdioOwnNull(b *bench) {
	var machines syscall.Stat_t
	must(b.t, syscall.Stat(os.DevNull, &machines))
	for how, got := range nullDevices(b, "%d:%i") {
		if strings.Count(got, ":") != 3 || strings.Contains(got, fmt.Sprintf("%d:%d\n", machines.Dev, machines.Ino)) {
			b.t.Errorf("the %s has the machine's null device, %q", how, got)
		}
	}
}

// nullDevices starts an app and a command without descriptors, and returns what stat prints for each of the three.
func nullDevices(b *bench, format string) map[string]string {
	script := "for n in 0 1 2; do N=$(stat -L -c " + format + " /proc/$$/fd/$n); echo $N >>/$0; done"
	got := make(map[string]string)
	read := func(how string, child spec.Running, err error) {
		must(b.t, err)
		_, err = wait(child)
		must(b.t, err)
		text, err := os.ReadFile(filepath.Join(b.root, how))
		must(b.t, err)
		got[how] = string(text)
	}
	read("app", b.start(b.spec("sh", "-c", script, "app"), spec.Stdio{}).main, nil)
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	child, err := a.tryExec(command("sh", "-c", script, "command"), spec.Stdio{})
	read("command", child, err)
	return got
}

func stdioAgain(b *bench) {
	s := b.spec()
	s.Process.User, s.Process.Group = "1000", "1000"
	b.wantBoth(s, "echo out >/dev/stdout; echo bad >/dev/stderr", "out\nbad\n")
}

func noOtherDescriptor(b *bench) {
	// 3 is the folder that ls reads.
	b.wantBoth(b.spec(), "ls /proc/self/fd; env | grep LISTEN || true", "0\n1\n2\n3\n")
}

func passedFiles(b *bench) {
	s := b.sh("echo $LISTEN_FDS; cat <&3; cat <&4; ls /proc/self/fd")
	s.Process.Env = append(s.Process.Env, "LISTEN_FDS=2")
	for _, name := range []string{"one", "two"} {
		b.write("../"+name, name+"\n")
		f, err := os.Open(filepath.Join(b.dir, name))
		must(b.t, err)
		defer f.Close()
		s.Files = append(s.Files, f)
	}
	b.wantRun(s, "2\none\ntwo\n0\n1\n2\n3\n4\n5\n")
	s = b.spec("sleep", "1000")
	s.Files = []*os.File{os.Stderr}
	b.start(s, spec.Stdio{}).wantExec(command("sh", "-c", "ls /proc/self/fd; echo $LISTEN_PID"), "0\n1\n2\n3\n\n")
}

func listenPID(b *bench) {
	s := b.sh("[ $LISTEN_PID = $$ ] && echo own")
	s.Files = []*os.File{os.Stderr}
	b.wantRun(s, "own\n")
}

func terminal(b *bench) {
	// Without a size, busybox's stty fails: crun sets a command's size while the command starts.
	const script = "tty; until stty size 2>/dev/null; do sleep 0.01; done; echo $$; cut -d' ' -f6 /proc/$$/stat; : </dev/tty && echo controlling"
	check := func(how string, start func(spec.Stdio) (spec.Running, error)) {
		text := b.onTerminal(how, start)
		said := regexp.MustCompile("^/dev/pts/0\r\n45 123\r\n([0-9]+)\r\n([0-9]+)\r\ncontrolling\r\n$").FindSubmatch(text)
		if said == nil || string(said[1]) != string(said[2]) {
			b.t.Errorf("the %s's terminal has %q", how, text)
		}
	}
	check("app", func(stdio spec.Stdio) (spec.Running, error) { return b.start(b.sh(script), stdio).main, nil })
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	check("command", func(stdio spec.Stdio) (spec.Running, error) {
		return a.tryExec(command("sh", "-c", script), stdio)
	})
}

// onTerminal returns what a process writes to its terminal.
func (b *bench) onTerminal(how string, start func(spec.Stdio) (spec.Running, error)) []byte {
	b.t.Helper()
	console := make(chan *os.File, 1)
	child, err := start(spec.Stdio{Terminal: true, Width: 123, Height: 45, Console: console})
	must(b.t, err)
	var master *os.File
	select {
	case master = <-console:
	default:
		b.t.Fatalf("no terminal of the %s was sent before it had started", how)
	}
	defer master.Close()
	_ = master.SetReadDeadline(time.Now().Add(timeLimit)) // an error: the runtime sent a terminal that cannot be polled
	text, err := io.ReadAll(master)
	if err != nil && !errors.Is(err, syscall.EIO) { // EIO is a terminal's end of file
		b.t.Error(err)
	}
	_, err = wait(child)
	must(b.t, err)
	return text
}
