package callins

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

func TestRunObeysItsSettings(t *testing.T) {
	p := newPod(t, sleeper)
	notExecutable := t.TempDir() + "/file"
	if err := os.WriteFile(notExecutable, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := func(path string) string {
		return shell(t, "", func(set map[string]any) { set["exec"] = []string{path} })
	}
	with := func(key string, value any) func(map[string]any) {
		return func(set map[string]any) { set[key] = value }
	}
	variables := func(pairs ...string) []map[string]string {
		var list []map[string]string
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, map[string]string{"name": pairs[i], "value": pairs[i+1]})
		}
		return list
	}
	const show = `echo "$PATH|$AC_APP_NAME|$AC_METADATA_URL|$container|$A"`
	tests := []struct {
		name, settings string
		args           []string
		want           result
	}{
		{"streams apart", shell(t, "echo out; echo err >&2; exit 42"), []string{"app"}, result{"out\n", "err\n", 42}},
		{"nothing of its own", shell(t, "true"), []string{"app"}, result{}},
		{"ended by a signal", shell(t, "kill -USR1 $$"), []string{"app"}, result{Code: 138}},
		{
			"environment", shell(t, show),
			[]string{"app"},
			result{Stdout: "/usr/sbin:/usr/bin:/sbin:/bin|app|http://x/|test|\n"},
		},
		{
			"listed environment wins", shell(t, show, with("environment", variables("PATH", "/bin", "A", "$HOME `id`\n", "container", ""))),
			[]string{"app"},
			result{Stdout: "/bin|app|http://x/||$HOME `id`\n\n"},
		},
		{"working directory", shell(t, "pwd", with("workingDirectory", "/usr")), []string{"app"}, result{Stdout: "/usr\n"}},
		{"empty working directory", shell(t, "pwd", with("workingDirectory", "")), []string{"app"}, result{Stdout: "/\n"}},
		{"nothing inherited", shell(t, "exec ls /proc/self/fd", with("tty", false)), []string{"app"}, result{Stdout: "0\n1\n2\n3\n"}},
		{"not found", program("/no/such"), []string{"app"}, result{
			Code:   127,
			Stderr: "run: start command in app \"app\": exec /no/such: no such file or directory\n",
		}},
		{"not executable", program(notExecutable), []string{"app"}, result{
			Code:   126,
			Stderr: "run: start command in app \"app\": exec " + notExecutable + ": permission denied\n",
		}},
		{"no such app", shell(t, "true"), []string{"x"}, result{Code: 125, Stderr: "run: app \"x\": no such app\n"}},
		{"no argument", shell(t, "true"), nil, result{Code: 125, Stderr: "run: want one argument, the app's name, have 0\n"}},
		{"two arguments", shell(t, "true"), []string{"app", "b"}, result{Code: 125, Stderr: "run: want one argument, the app's name, have 2\n"}},
		{"no settings", "", []string{"app"}, result{Code: 125, Stderr: "run: read settings: descriptor 3 was not passed\n"}},
		{"settings of 1 MiB", padded(shell(t, "exit 8"), maxSettings), []string{"app"}, result{Code: 8}},
		{
			"settings of more than 1 MiB", padded(shell(t, "exit 8"), maxSettings+1),
			[]string{"app"},
			result{Code: 125, Stderr: "run: settings are larger than 1048576 bytes\n"},
		},
		{"bad settings", "{}", []string{"app"}, result{Code: 125, Stderr: "run: settings: \"exec\" is required\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, finish(t, p.caller("run", test.settings, test.args...))); diff != "" {
				t.Errorf("run (-want +got):\n%s", diff)
			}
		})
	}
}

func padded(text string, size int) string { return text + strings.Repeat(" ", size-len(text)) }

func TestRunIsRefusedInAnEndedApp(t *testing.T) {
	p := newPod(t, testApp{Name: "app", Args: []string{"/bin/true"}})
	p.awaitEnded(1)
	want := result{Code: 125, Stderr: "run: app \"app\": app is not running\n"}
	if diff := cmp.Diff(want, finish(t, p.caller("run", shell(t, "true"), "app"))); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
}

// When a caller has been killed, the next command of its app starts after all processes of the caller's command have ended.
func TestACommandStartsAfterThoseOfKilledCallers(t *testing.T) {
	p := newPod(t, sleeper)
	lock := filepath.Join(t.TempDir(), "lock")
	// The end of dd takes the time that its memory does, and the lock stays until then.
	const slow = "dd if=/dev/zero bs=256M count=1 2>/dev/null | { head -c 1 >/dev/null; echo up; exec sleep 1000; }"
	first := p.caller("run", shell(t, "exec flock "+lock+" sh -c '"+slow+"'"), "app")
	first.Stdout = nil
	up, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(up, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	if diff := cmp.Diff(result{Stdout: "free\n"}, finish(t, p.caller("run", shell(t, "flock --nonblock "+lock+" echo free"), "app"))); diff != "" {
		t.Errorf("the lock of the killed caller's command (-want +got):\n%s", diff)
	}
}

// A command that its caller's kill cannot end, here because it is traced and so stays a zombie, delays no other call.
func TestACommandThatCannotEndDelaysNoOther(t *testing.T) {
	p := newPod(t, sleeper)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first := p.caller("run", shell(t, roleVariable+"=tracer setsid "+self+" $$ & wait"), "app")
	startUntil(t, first, "traced: <nil>\n")
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	if diff := cmp.Diff(result{Stdout: "next\n"}, finish(t, p.caller("run", shell(t, "echo next"), "app"))); diff != "" {
		t.Errorf("the next command (-want +got):\n%s", diff)
	}
}

// A daemon whose command has another name has that name in the messages of run.
func TestRunHasTheNameThatItsCallerGivesIt(t *testing.T) {
	p := newPod(t, sleeper)
	cmd := p.caller("run", shell(t, "true"), "x")
	cmd.Env = append(cmd.Environ(), names.RunNameVariable+"=launcher: exec")
	want := result{Code: 125, Stderr: "launcher: exec: app \"x\": no such app\n"}
	if diff := cmp.Diff(want, finish(t, cmd)); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
}

func TestRunReturnsEveryExitCode(t *testing.T) {
	p := newPod(t, sleeper)
	for want := range 256 {
		if got := p.call(shell(t, fmt.Sprint("exit ", want)), null(t), null(t), null(t)); got != want {
			t.Errorf("exit code %d came back as %d", want, got)
		}
	}
}

// ready is a script that prints "ready" when its traps are set, then waits.
func ready(traps string) string { return traps + "; echo ready; sleep infinity & wait; wait" }

func TestRunForwardsSignals(t *testing.T) {
	p := newPod(t, sleeper)
	for _, sig := range forwarded {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := p.caller("run", shell(t, ready(fmt.Sprintf("trap 'kill $!; exit 42' %d", sig))), "app")
			startUntil(t, cmd, "ready\n")
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if got := exitCode(t, cmd.Wait()); got != 42 {
				t.Errorf("exit code %d, want the trap's 42", got)
			}
		})
	}
}

// A shell has its background jobs ignore SIGINT, and nohup its command SIGHUP.
func TestRunForwardsAnIgnoredSignalButAHangup(t *testing.T) {
	p := newPod(t, sleeper)
	for ignored, test := range map[string]struct {
		signals []os.Signal
		want    int
	}{
		"INT": {[]os.Signal{unix.SIGINT}, 130},
		"HUP": {[]os.Signal{unix.SIGHUP, unix.SIGTERM}, 143},
	} {
		t.Run(ignored, func(t *testing.T) {
			cmd := p.caller("run", shell(t, "echo ready; exec sleep infinity"), "app")
			cmd.Args = []string{"sh", "-c", `trap "" ` + ignored + `; exec "$0" app`, cmd.Path}
			cmd.Path = "/bin/sh"
			startUntil(t, cmd, "ready\n")
			for _, sig := range test.signals {
				cmd.Process.Signal(sig)
			}
			if got := exitCode(t, cmd.Wait()); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
		})
	}
}

// The fifo ends when the last process of the session has.
func TestAKilledRunTakesItsSession(t *testing.T) {
	p := newPod(t, sleeper)
	fifo := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "trap '' HUP TERM; exec >" + fifo + "; sleep infinity & (sleep infinity & wait) & echo ready; wait"
	for name, settings := range map[string]string{"pipes": shell(t, script), "terminal": shell(t, script, onTerminal)} {
		t.Run(name, func(t *testing.T) {
			cmd := p.caller("run", settings, "app")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			end := openReader(t, fifo)
			defer end.Close()
			readUntil(t, end, "ready\n")
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(end); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
		})
	}
}

// openReader opens a fifo once it has a writer.
func openReader(t *testing.T, path string) *os.File {
	t.Helper()
	opened := make(chan *os.File, 1)
	go func() {
		f, _ := os.Open(path) // nil after an error
		opened <- f
	}()
	select {
	case f := <-opened:
		if f == nil {
			t.Fatalf("cannot open %s", path)
		}
		return f
	case <-limited(t).Done():
		t.Fatalf("%s has no writer within %v", path, timeLimit)
		return nil
	}
}

func TestRunEndsWithThePod(t *testing.T) {
	p := newPod(t, sleeper)
	cmd := p.caller("run", shell(t, "echo ready; exec sleep infinity"), "app")
	startUntil(t, cmd, "ready\n")
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := exitCode(t, cmd.Wait()); got != 137 {
		t.Errorf("exit code %d, want 137", got)
	}
}

func TestRunDoesNotWaitForABackgroundChild(t *testing.T) {
	p := newPod(t, sleeper)
	cmd := p.caller("run", shell(t, "sleep infinity & echo ok"), "app")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	err = cmd.Run() // returns although the pipe stays open
	w.Close()
	if got := exitCode(t, err); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	readUntil(t, r, "ok\n")
}

func TestRunCarriesInputAndOutput(t *testing.T) {
	const size = 100 << 20
	p := newPod(t, sleeper)
	cmd := p.caller("run", shell(t, "exec cat"), "app")
	cmd.Stdin = io.LimitReader(pattern{}, size)
	count := &compare{}
	cmd.Stdout = count
	if got := exitCode(t, cmd.Run()); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	if count.n != size || count.bad {
		t.Errorf("%d bytes came back, altered: %v, want %d", count.n, count.bad, size)
	}
}

var block = bytes.Repeat([]byte("0123456789abcde\n"), 4096)

type pattern struct{}

func (pattern) Read(p []byte) (int, error) { return copy(p, block) &^ 15, nil }

// compare checks that what is written is the pattern's.
type compare struct {
	n   int
	bad bool
}

func (c *compare) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		want := block[c.n%16:]
		n := min(len(want), len(rest))
		c.bad = c.bad || !bytes.Equal(rest[:n], want[:n])
		rest, c.n = rest[n:], c.n+n
	}
	return len(p), nil
}

func TestRunPassesTheEndOfInput(t *testing.T) {
	p := newPod(t, sleeper)
	cmd := p.caller("run", shell(t, "cat; echo end"), "app")
	cmd.Stdin = strings.NewReader("hi")
	if diff := cmp.Diff(result{Stdout: "hiend\n"}, finish(t, cmd)); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
}

func TestFiftyCallsRunAtOnce(t *testing.T) {
	p := newPod(t, sleeper, testApp{Name: "short", Args: []string{"/bin/true"}})
	var calls sync.WaitGroup
	none := null(t)
	for i := range 50 {
		settings := shell(t, fmt.Sprint("exit ", i))
		calls.Go(func() {
			if got := p.call(settings, none, none, none); got != i {
				t.Errorf("exit code %d came back as %d", i, got)
			}
		})
		calls.Go(func() {
			if _, err := askDocument(t.Context(), Streams{Socket: p.socket}, requestStatus); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// run reads its settings to their end of file, however
// they come.
func TestRunReadsSettingsInSmallWrites(t *testing.T) {
	p := newPod(t, sleeper)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := p.caller("run", "", "app")
	cmd.ExtraFiles = []*os.File{r}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, b := range []byte(shell(t, "exit 7")) {
		w.Write([]byte{b})
		eventually(t, "run reads the byte by itself", func() bool {
			left, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
			return left == 0 || err != nil
		})
	}
	w.Close()
	if got := exitCode(t, cmd.Wait()); got != 7 {
		t.Errorf("exit code %d, want 7", got)
	}
}

// TestRunEndsBySignalBeforeTheStart has a supervisor that takes the call and never
// answers, as one that is stopped.
func TestRunEndsBySignalBeforeTheStart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	listener, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := listener.SetDeadline(time.Now().Add(timeLimit)); err != nil {
		t.Fatal(err)
	}
	for _, tty := range []bool{false, true} {
		cmd := program(t, "run", socket, "app")
		cmd.ExtraFiles = []*os.File{memory(t, fmt.Sprintf(`{"exec":["/bin/true"],"user":"0","group":"0","tty":%v}`, tty))}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := listener.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(timeLimit)); err != nil {
			t.Fatal(err)
		}
		var req request
		p, err := conn{c}.receive(&req)
		p.close()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cmd.Process.Signal(unix.SIGWINCH), cmd.Process.Signal(unix.SIGTERM)); err != nil {
			t.Fatal(err)
		}
		if got := exitCode(t, cmd.Wait()); got != 143 || stderr.String() != "run: ended by signal \"terminated\" before the command ran\n" {
			t.Errorf("exit code %d, %q", got, stderr.String())
		}
		c.Close()
	}
}

// The command runs already while the reply that
// says so is on its way, and it gets each change.
func TestWindowChangesDuringTheStartArrive(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	listener, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := listener.SetDeadline(time.Now().Add(timeLimit)); err != nil {
		t.Fatal(err)
	}
	caller, err := dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	server, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, want := range [][]os.Signal{nil, {unix.SIGWINCH}, {unix.SIGUSR1}, {unix.SIGWINCH, unix.SIGTERM}} {
		signals := make(chan os.Signal, 64)
		for _, sig := range want {
			signals <- sig
		}
		limit := limited(t)
		go func() {
			for len(signals) > 0 && limit.Err() == nil {
				runtime.Gosched()
			}
			_ = sendReply(conn{server}, reply{Kind: kindStarted}, nil)
		}()
		got, early, err := awaitStart(caller, kindStarted, signals)
		got.close()
		if err != nil || !slices.Equal(early, want) {
			t.Errorf("%v of %v are for the command (%v)", early, want, err)
		}
	}
}

// A command whose caller has gone before its start is not started: the caller may have asked for it again.
func TestACommandWhoseCallerHasGoneIsNotStarted(t *testing.T) {
	listener, err := Listen(filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	caller, err := net.Dial("unixpacket", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if err := caller.Close(); err != nil {
		t.Fatal(err)
	}
	started := false
	variables := func(string) []string { started = true; return nil }
	func() {
		defer func() { _ = recover() }() // there is no pod
		_ = serveRun(nil, variables)(t.Context(), &Call{conn: conn{accepted}})
	}()
	if started {
		t.Error("the command was about to start")
	}
}
