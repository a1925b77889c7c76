package supervisor_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
	"kurma.io/stager/tests/children"
)

// podOf runs a pod of one app that stays.
func podOf(t *testing.T, app App) *running {
	t.Helper()
	app.Name = "app"
	return start(t, Config{Grace: time.Minute, Apps: []App{app}}).up()
}

func script(text string) spec.Command {
	return spec.Command{Args: []string{"/bin/sh", "-c", text}, Env: os.Environ()}
}

func run1(t *testing.T, p *running, text string, stdio spec.Stdio) *Session {
	t.Helper()
	s, err := p.Exec("app", script(text), stdio)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// outputPipe makes a pipe that a command writes to.
func outputPipe(t *testing.T) (r *bufio.Reader, w *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	return bufio.NewReader(read), write
}

func TestASessionReportsItsExit(t *testing.T) {
	b := newFakes(t)
	pod := podOf(t, App{Main: b.sh("exec sleep 1000")})
	for _, test := range []struct {
		script string
		want   Exit
	}{
		{"exit 0", Exit{}},
		{"exit 42", Exit{Code: 42}},
		{"exit 255", Exit{Code: 255}},
		{"kill -9 $$", Exit{137, "killed"}},
	} {
		s := run1(t, pod, test.script, spec.Stdio{})
		<-s.Done()
		if got := s.Exit(); got != test.want {
			t.Errorf("%s: %+v", test.script, got)
		}
	}
}

func TestExecReportsItsErrors(t *testing.T) {
	b := newFakes(t)
	gate := make(chan struct{})
	pod := start(t, Config{Grace: time.Minute, Apps: []App{
		{Name: "app", Main: b.sh("exec sleep 1000")},
		{Name: "ended", Main: b.sh("exit 0"), PostStop: func() (spec.Container, error) {
			close(gate)
			return b.sh("exit 0")()
		}},
	}}).up()
	<-gate
	var missing *spec.ExecError
	if _, err := pod.Exec("app", spec.Command{Args: []string{"/none"}}, spec.Stdio{}); !errors.As(err, &missing) || missing.ExitCode() != 127 {
		t.Errorf("missing program: %v", err)
	}
	if _, err := pod.Exec("app", spec.Command{Args: []string{"/etc/passwd"}}, spec.Stdio{}); !errors.As(err, &missing) || missing.ExitCode() != 126 {
		t.Errorf("no program: %v", err)
	}
	if _, err := pod.Exec("other", script("exit 0"), spec.Stdio{}); !errors.Is(err, ErrNoApp) {
		t.Errorf("no app: %v", err)
	}
	if _, err := pod.Exec("ended", script("exit 0"), spec.Stdio{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("ended app: %v", err)
	}
	if _, err := pod.Attach("other"); !errors.Is(err, ErrNoApp) {
		t.Errorf("attach to no app: %v", err)
	}
	if _, err := pod.Attach("ended"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("attach to ended app: %v", err)
	}
}

func TestSessionKillTakesItsDescendants(t *testing.T) {
	b := newFakes(t)
	pod := podOf(t, App{Main: b.sh("exec sleep 1000")})
	for _, test := range []struct{ name, script string }{
		{"under way", "(sleep 1000 & echo $!; sh -c 'sleep 1001 & echo $!'); sleep 1000"},
		{"command ended", "(sleep 1000 & echo $!; sh -c 'sleep 1001 & echo $!'); exit 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, w := outputPipe(t)
			s := run1(t, pod, test.script, spec.Stdio{Stdout: w})
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := r.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasSuffix(test.script, "3") {
				<-s.Done()
			}
			s.Kill()
			<-s.Done()
			// Every process that could write has ended.
			if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
				t.Errorf("rest %q, %v", rest, err)
			}
			s.Kill() // of nothing
		})
	}
	if got := pod.Status()[0].State; got != StateRunning {
		t.Errorf("the app is %s", got)
	}
}

func TestSessionKillSparesANewSessionOfTheSameNumber(t *testing.T) {
	b := newFakes(t)
	pod := podOf(t, App{Main: b.sh("exec sleep 1000")})
	old := run1(t, pod, "exit 0", spec.Stdio{})
	<-old.Done()
	other := run1(t, pod, "sleep 1000", spec.Stdio{})
	// As if the kernel had given the number again.
	old.SetPID(other.PID())
	old.Kill()
	if err := other.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	<-other.Done()
	if got := other.Exit(); got != (Exit{143, "terminated"}) {
		t.Errorf("%+v", got)
	}
}

func TestSessionsEndWithTheApp(t *testing.T) {
	b := newFakes(t)
	gate, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	pod := podOf(t, App{Stdin: gate, Main: b.sh("read gate; exit 5")})
	sessions := make([]*Session, 50)
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() { sessions[i] = run1(t, pod, "trap '' TERM; while :; do sleep 1000; done", spec.Stdio{}) })
	}
	all.Wait()
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range sessions {
		<-s.Done()
		if got := s.Exit(); got != (Exit{137, "killed"}) {
			t.Errorf("%+v", got)
		}
	}
	if _, err := pod.stopped(); err != nil {
		t.Error(err)
	}
	if got := *pod.Status()[0].Exit; got != (Exit{Code: 5}) {
		t.Errorf("app: %+v", got)
	}
}

func TestExecIsSafeWhileTheAppEnds(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "exit 0")
	pod := podOf(t, app)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for n := 0; ; n++ {
				s, err := pod.Exec("app", script("exit 6"), spec.Stdio{})
				if errors.Is(err, ErrNotRunning) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				<-s.Done()
				if got := s.Exit(); got != (Exit{Code: 6}) && got != (Exit{137, "killed"}) {
					t.Errorf("%+v", got)
				}
				if n == 20 {
					open()
				}
			}
		})
	}
	callers.Wait()
}

func TestSessionOfReturnsTheKernelsSession(t *testing.T) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if got := strconv.Itoa(SessionOf(os.Getpid())); got != fields[3] {
		t.Errorf("own session: %s, want %s", got, fields[3])
	}
	zombie := children.Fork(t, "exit 0")
	children.AwaitZombie(t, zombie)
	if got := SessionOf(zombie); got != 0 {
		t.Errorf("zombie: %d", got)
	}
	if _, err := syscall.Wait4(zombie, nil, 0, nil); err != nil {
		t.Error(err)
	}
	if got := SessionOf(zombie); got != 0 {
		t.Errorf("none: %d", got)
	}
}
