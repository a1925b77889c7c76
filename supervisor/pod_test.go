package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/internal/procstat"
	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/surroundings"
)

func TestPodRunsUntilStopped(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	ended := make(chan struct{})
	pod := start(t, Config{Grace: time.Minute, Apps: []App{
		{Name: "one", Main: b.sh("echo up; exec sleep 1000"), Stdout: out},
		{Name: "two", Main: b.sh("exit 7"), PostStop: func() (spec.Container, error) {
			close(ended)
			return b.sh("exit 0")()
		}},
	}}).up()
	<-ended
	out.await("up")
	if got := pod.Status()[0]; got.State != StateRunning || got.PID == 0 || got.Exit != nil {
		t.Errorf("status of a running app: %+v", got)
	}
	code, err := pod.stopped()
	if code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	want := []AppStatus{
		{Name: "one", State: StateExited, Exit: &Exit{Code: 143, Reason: "terminated"}},
		{Name: "two", State: StateExited, Exit: &Exit{Code: 7}},
	}
	if diff := cmp.Diff(want, pod.Status()); diff != "" {
		t.Error(diff)
	}
}

func TestAnAppIsStoppedByItsOwnSignal(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Grace: time.Minute, Apps: []App{
		{Name: "usual", Main: b.sh("exec sleep 1000")},
		{Name: "own", Main: b.sh("trap 'exit 7' USR1; trap '' TERM; echo up; while :; do sleep 1000 & wait $!; done"), Stdout: out, StopSignal: syscall.SIGUSR1},
		{Name: "real-time", Main: b.sh("exec sleep 1000"), StopSignal: 37},
	}}).up()
	out.await("up")
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	want := []Exit{{Code: 143, Reason: "terminated"}, {Code: 7}, {Code: 128 + 37, Reason: "signal 37"}}
	for i, s := range pod.Status() {
		if *s.Exit != want[i] {
			t.Errorf("app %q: %+v, want %+v", s.Name, *s.Exit, want[i])
		}
	}
}

// An app that is stopped, by its terminal or an operator, goes on for its end.
func TestAStoppedAppEndsByItself(t *testing.T) {
	b := newFakes(t)
	pod := start(t, Config{Grace: time.Minute, Apps: []App{
		{Name: "a", Main: b.sh("trap 'exit 9' TERM; kill -STOP $$; while :; do sleep 1000 & wait $!; done")},
	}}).up()
	surroundings.Eventually(t, "the app is stopped", func() bool {
		stat, err := procstat.Read(pod.Status()[0].PID)
		return err == nil && stat.State == 'T'
	})
	if _, err := pod.stopped(); err != nil {
		t.Error(err)
	}
	if exit := pod.Status()[0].Exit; exit.Code != 9 {
		t.Errorf("%+v, want the app's own code", exit)
	}
}

func TestFailedStartNamesTheAppAndStopsTheOthers(t *testing.T) {
	b := newFakes(t)
	for _, test := range []struct {
		name string
		bad  App
		want string
		exit Exit
	}{
		{
			"not found",
			App{Main: b.run("/no/such/program")},
			`start app "bad": exec /no/such/program: no such file or directory`,
			Exit{127, "not executed"},
		},
		{
			"not executable",
			App{Main: b.run("/etc/passwd")},
			`start app "bad": exec /etc/passwd: permission denied`,
			Exit{126, "not executed"},
		},
		{
			"no container",
			App{Main: func() (spec.Container, error) { return nil, errors.New("no room") }},
			`start app "bad": no room`,
			Exit{125, "not started"},
		},
		{
			"pre-start fails",
			App{Main: b.sh("exit 0"), PreStart: b.sh("exit 3")},
			`start app "bad": pre-start handler exited 3`,
			Exit{3, "pre-start failed"},
		},
		{
			"pre-start not found",
			App{Main: b.sh("exit 0"), PreStart: b.run("/nowhere")},
			`start app "bad": pre-start handler: exec /nowhere: no such file or directory`,
			Exit{127, "not executed"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.bad.Name = "bad"
			pod := start(t, Config{Grace: time.Minute, Apps: []App{
				{Name: "good", Main: b.sh("exec sleep 1000")}, test.bad,
			}})
			code, err := pod.wait()
			if code != 1 || err == nil || err.Error() != test.want {
				t.Errorf("Run() = %d, %v; want 1, %s", code, err, test.want)
			}
			if got := pod.Status()[1]; got.State != StateExited || *got.Exit != test.exit || got.Error == "" {
				t.Errorf("status: %+v, %+v", got, got.Exit)
			}
			select {
			case <-pod.ready:
				t.Error("ready was called")
			default:
			}
		})
	}
}

func TestAllAppsShareOneGracePeriod(t *testing.T) {
	b := newFakes(t)
	var apps []App
	out := newLog()
	for i := range 5 {
		apps = append(apps, App{
			Name: fmt.Sprint("app", i), Stdout: out,
			Main: b.sh("trap '' TERM; echo set; while :; do sleep 1000; done"),
		})
	}
	pod := start(t, Config{Grace: 50 * time.Millisecond, Apps: apps}).up()
	out.await(strings.Repeat("set\n", 5))
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	for _, s := range pod.Status() {
		if *s.Exit != (Exit{137, "killed"}) {
			t.Errorf("%s: %+v", s.Name, *s.Exit)
		}
	}
}

func TestTermRightAfterReadyIsHandled(t *testing.T) {
	b := newFakes(t)
	// The app prints that its handler is set before the test stops it.
	out := newLog()
	pod := start(t, Config{Grace: time.Minute, Apps: []App{{
		Name: "app", Stdout: out, Main: b.sh("trap 'echo bye; exit 5' TERM; echo set; sleep 1000 & wait"),
	}}})
	out.await("set")
	if _, err := pod.stopped(); err != nil {
		t.Fatal(err)
	}
	if got := *pod.Status()[0].Exit; got != (Exit{Code: 5}) || !strings.HasSuffix(out.String(), "bye\n") {
		t.Errorf("exit %+v, output %q", got, out)
	}
}

func TestStopEndsAPreStartHandler(t *testing.T) {
	clause.Covers(t, "C-EVT-06")
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Grace: time.Minute, Apps: []App{{
		Name: "app", Stdout: out,
		PreStart: b.sh("echo preparing; exec sleep 1000"),
		Main:     b.sh("echo main"),
		PostStop: b.sh("echo cleaned"),
	}}})
	out.await("preparing")
	if got := pod.Status()[0]; got.State != StateStarting || got.PID != 0 {
		t.Errorf("status: %+v", got)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if got := out.String(); got != "preparing\ncleaned\n" {
		t.Errorf("output %q", got)
	}
}

func TestStopEndsAStart(t *testing.T) {
	b := newFakes(t)
	gate := make(chan struct{})
	begun := make(chan struct{})
	out := newLog()
	pod := start(t, Config{Grace: time.Minute, Apps: []App{{
		Name: "app", Stdout: out,
		Main: func() (spec.Container, error) {
			c, err := b.make("/bin/sleep", "1000")
			c.starting = gate
			close(begun)
			return c, err
		},
		PostStop: b.sh("echo cleaned"),
	}}})
	<-begun
	if got := pod.Status()[0].State; got != StateStarting {
		t.Errorf("status does not wait for the start: %s", got)
	}
	pod.end()
	<-pod.StopAsked()
	close(gate)
	if code, err := pod.wait(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if got := *pod.Status()[0].Exit; got != (Exit{143, "terminated"}) || out.String() != "cleaned\n" {
		t.Errorf("exit %+v, output %q", got, out)
	}
}

func TestHandlersRunAroundMain(t *testing.T) {
	clause.Covers(t, "C-EVT-01")
	for _, test := range []struct{ name, main string }{
		{"exit 0", "echo main; exit 0"},
		{"exit 7", "echo main; exit 7"},
		{"killed", "echo main; kill -9 $$"},
		{"leaves a child", "echo main; trap '' TERM; sleep 1000 &"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newFakes(t)
			out := newLog()
			pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{
				Name: "app", Stdout: out,
				PreStart: b.sh("echo pre"), Main: b.sh(test.main), PostStop: b.sh("echo post"),
			}}})
			if _, err := pod.wait(); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != "pre\nmain\npost\n" {
				t.Errorf("output %q", got)
			}
		})
	}
}

func TestEveryExitCodeIsReported(t *testing.T) {
	b := newFakes(t)
	for base := 0; base < 256; base += 32 {
		var apps []App
		for n := base; n < base+32; n++ {
			apps = append(apps, App{Name: fmt.Sprint("app", n), Main: b.sh(fmt.Sprint("exit ", n))})
		}
		pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: apps})
		if _, err := pod.wait(); err != nil {
			t.Fatal(err)
		}
		for i, s := range pod.Status() {
			if *s.Exit != (Exit{Code: base + i}) {
				t.Errorf("%d: %+v", base+i, *s.Exit)
			}
		}

	}
}

func TestSignalsAreNamedAsReasons(t *testing.T) {
	b := newFakes(t)
	for _, test := range []struct {
		sig  syscall.Signal
		want Exit
	}{
		{syscall.SIGHUP, Exit{129, "hangup"}},
		{syscall.SIGINT, Exit{130, "interrupt"}},
		{syscall.SIGABRT, Exit{134, "aborted"}},
		{syscall.SIGKILL, Exit{137, "killed"}},
		{syscall.SIGSEGV, Exit{139, "segmentation fault"}},
		{syscall.SIGTERM, Exit{143, "terminated"}},
	} {
		t.Run(test.want.Reason, func(t *testing.T) {
			pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{
				{Name: "app", Main: b.sh(fmt.Sprintf("ulimit -c 0; kill -%d $$", test.sig))},
			}})
			code, err := pod.wait()
			if got := *pod.Status()[0].Exit; got != test.want || code != test.want.Code || err != nil {
				t.Errorf("%+v, Run() = %d, %v", got, code, err)
			}
		})
	}
}

func TestOOMKillsAreNamedAsReasons(t *testing.T) {
	for _, test := range []struct {
		name, script string
		oom          bool
		want         Exit
	}{
		{"killed for memory", "kill -9 $$", true, Exit{137, "oom-killed"}},
		{"killed otherwise", "kill -9 $$", false, Exit{137, "killed"}},
		{"not asked after an exit", "exit 0", true, Exit{}},
		{"not asked after another signal", "kill $$", true, Exit{143, "terminated"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newFakes(t)
			pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{Name: "app", Main: func() (spec.Container, error) {
				c, err := b.make("/bin/sh", "-c", test.script)
				c.oom = test.oom
				return c, err
			}}}})
			if _, err := pod.wait(); err != nil {
				t.Fatal(err)
			}
			if got := *pod.Status()[0].Exit; got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// A process that the pod's stop kills was not killed because memory ran out, whatever happened before.
func TestTheStopsKillIsNotAnOOMKill(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Grace: 50 * time.Millisecond, Apps: []App{{Name: "app", Stdout: out, Main: func() (spec.Container, error) {
		c, err := b.make("/bin/sh", "-c", "trap '' TERM; echo set; while :; do sleep 1000; done")
		c.oom = true
		return c, err
	}}}}).up()
	out.await("set")
	if _, err := pod.stopped(); err != nil {
		t.Fatal(err)
	}
	if got := *pod.Status()[0].Exit; got != (Exit{137, "killed"}) {
		t.Errorf("%+v", got)
	}
}

func TestAFailedAppIsRestarted(t *testing.T) {
	b := newFakes(t)
	count := filepath.Join(t.TempDir(), "count")
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Restart: spec.RestartPolicy{AfterFailure: true}, Apps: []App{{
		Name: "app",
		Main: b.sh(fmt.Sprintf("echo run >>%s; test $(wc -l <%s) = 3", count, count)),
	}}})
	if code, err := pod.wait(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if got := pod.Status()[0]; got.Restarts != 2 || *got.Exit != (Exit{}) {
		t.Errorf("%+v, %+v", got, got.Exit)
	}
	text, err := os.ReadFile(count)
	if string(text) != "run\nrun\nrun\n" {
		t.Errorf("runs: %q, %v", text, err)
	}
}

func TestStopEndsABackOff(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Restart: spec.RestartPolicy{AfterSuccess: true, AfterFailure: true}, Apps: []App{{Name: "app", Stdout: out, Main: b.sh("echo run; exit 4")}}})
	out.await(strings.Repeat("run\n", 4))
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if got := pod.Status()[0]; got.State != StateExited || got.Exit == nil {
		t.Errorf("%+v", got)
	}
}

func TestFailurePolicyEndsThePod(t *testing.T) {
	b := newFakes(t)
	pod := start(t, Config{Exit: spec.ExitPolicy{AtFailure: true}, Grace: time.Minute, Apps: []App{
		{Name: "stays", Main: b.sh("exec sleep 1000")},
		{Name: "fine", Main: b.sh("exit 0")},
		{Name: "fails", Main: b.sh("exit 9")},
	}})
	if code, err := pod.wait(); code != 9 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

func TestAPodWithoutAppsRunsUntilStopped(t *testing.T) {
	pod := start(t, Config{}).up()
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

func TestAFailedReadyReportEndsThePod(t *testing.T) {
	b := newFakes(t)
	pod := New(Config{Apps: []App{{Name: "app", Main: b.sh("exec sleep 1000")}}})
	code, err := pod.Run(t.Context(), func() error { return errors.New("no reader") })
	if code != 1 || err == nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

func TestStopKillsAPreStartThatStays(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Grace: 50 * time.Millisecond, Apps: []App{{
		Name: "app", Stdout: out, Main: b.sh("echo main"),
		PreStart: b.sh("trap '' TERM; echo stays; while :; do sleep 1000; done"),
		PostStop: b.sh("echo cleaned; exit 1"),
	}}})
	out.await("stays")
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	if got := out.String(); got != "stays\ncleaned\n" {
		t.Errorf("output %q", got)
	}
}

func TestThePodIsReadyWhenItsAppsAre(t *testing.T) {
	b := newFakes(t)
	for _, test := range []struct {
		name, script string
		answer       error
		want         string
	}{
		{"ready", "exec sleep 1000", nil, ""},
		{"never", "exec sleep 1000", errors.New("no READY=1"), `start app "app": no READY=1`},
		{"ended before", "exit 0", context.Canceled, `start app "app": ended before it was ready`},
	} {
		t.Run(test.name, func(t *testing.T) {
			gate := make(chan struct{})
			pod := start(t, Config{Grace: time.Minute, Apps: []App{{
				Name: "app", Main: b.sh(test.script),
				Ready: func(ctx context.Context) error {
					if errors.Is(test.answer, context.Canceled) {
						<-ctx.Done()
					}
					<-gate
					return test.answer
				},
			}}})
			select {
			case <-pod.ready:
				t.Error("ready before the app was")
			default:
			}
			close(gate)
			if test.want == "" {
				pod.up()
				return
			}
			if code, err := pod.wait(); code != 1 || err == nil || err.Error() != test.want {
				t.Errorf("Run() = %d, %v", code, err)
			}
		})
	}
}

// A follower of the log sees its end when the app has ended for good, not at the pod's end.
func TestEndedIsCalledOnceAfterTheLastRunAndItsHandlers(t *testing.T) {
	b := newFakes(t)
	var seen []State
	var text string
	out := newLog()
	ended := make(chan struct{})
	var pod *running
	up := make(chan struct{})
	app := App{Name: "app", Main: b.sh("echo main; exit 1"), PostStop: b.sh("echo last"), Stdout: out}
	app.Ended = func() {
		<-up
		seen = append(seen, pod.Status()[0].State)
		text = out.String()
		close(ended)
	}
	pod = start(t, Config{Grace: time.Minute, Apps: []App{app}})
	close(up)
	<-ended
	if diff := cmp.Diff([]State{StateEnding}, seen); diff != "" || text != "main\nlast\n" {
		t.Errorf("%s\noutput before it: %q", diff, text)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// writerFunc is a log that is a function.
type writerFunc func([]byte)

func (f writerFunc) Write(chunk []byte) (int, error) {
	f(chunk)
	return len(chunk), nil
}

// Once the status has the exit of an app, all of its output is in its log.
func TestExitIsReportedAfterTheLastOutput(t *testing.T) {
	b := newFakes(t)
	var pod *running
	up := make(chan struct{})
	var exit *Exit
	log := func([]byte) {
		<-up
		surroundings.Eventually(t, "an app that ends", func() bool { return pod.Status()[0].State == StateEnding })
		exit = pod.Status()[0].Exit
	}
	ended := make(chan struct{})
	app := App{Name: "app", Main: b.sh("echo last; exit 1"), Stdout: writerFunc(log), Ended: func() { close(ended) }}
	pod = start(t, Config{Grace: time.Minute, Apps: []App{app}})
	close(up)
	<-ended
	if exit != nil {
		t.Errorf("%+v is reported while the last output is on its way", *exit)
	}
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// A log that is stuck does not hide that an app has ended, and how.
func TestExitIsReportedWhereTheLogIsStuck(t *testing.T) {
	t.Parallel() // it waits for a limit
	b := newFakes(t)
	stuck := make(chan struct{})
	app := App{Name: "app", Main: b.sh("echo last; exit 1"), Stdout: writerFunc(func([]byte) { <-stuck })}
	pod := start(t, Config{Grace: time.Minute, Apps: []App{app}})
	surroundings.Eventually(t, "the exit of an app", func() bool { return pod.Status()[0].Exit != nil })
	if exit := pod.Status()[0].Exit; exit.Code != 1 {
		t.Errorf("exit %+v", *exit)
	}
	close(stuck)
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// stuck is a container whose start goes on until it is killed.
type stuck struct {
	*fake
	killed chan struct{}
	once   sync.Once
}

func (s *stuck) Start(spec.Stdio) (spec.Running, error) {
	<-s.killed
	return nil, errors.New("killed")
}

func (s *stuck) Kill() error {
	s.once.Do(func() { close(s.killed) })
	return nil
}

func TestGracePeriodEndsAStartThatHangs(t *testing.T) {
	b := newFakes(t)
	for name, change := range map[string]func(*App, func() (spec.Container, error)){
		"main":      func(a *App, hangs func() (spec.Container, error)) { a.Main = hangs },
		"pre-start": func(a *App, hangs func() (spec.Container, error)) { a.Main, a.PreStart = b.sh("true"), hangs },
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{})
			app := App{Name: "app"}
			change(&app, func() (spec.Container, error) {
				c, err := b.make()
				close(begun)
				return &stuck{fake: c, killed: make(chan struct{})}, err
			})
			pod := start(t, Config{Apps: []App{app}})
			<-begun
			if code, err := pod.stopped(); code != 0 || err != nil {
				t.Errorf("Run() = %d, %v", code, err)
			}
		})
	}
}

func TestTenAppsEndAtOnce(t *testing.T) {
	b := newFakes(t)
	gate, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	var apps []App
	for i := range 10 {
		apps = append(apps, App{
			Name: fmt.Sprint("app", i), Stdin: gate,
			Main: b.sh(fmt.Sprintf("read gate; (exit 99 &); exit %d", i)),
		})
	}
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: apps}).up()
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.wait(); err != nil {
		t.Fatal(err)
	}
	for i, s := range pod.Status() {
		if *s.Exit != (Exit{Code: i}) {
			t.Errorf("app %d: %+v", i, *s.Exit)
		}
	}
}
