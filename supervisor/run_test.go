package supervisor_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
	"kurma.io/stager/tests/children"
)

// leaky is a container of which the first Kill misses what is just forked. If first is not nil, the first Kill and the
// first PIDs fail.
type leaky struct {
	*fake
	first        error
	kills, looks int
}

func (l *leaky) Kill() error {
	if l.kills++; l.kills == 1 {
		return l.first
	}
	return l.fake.Kill()
}

func (l *leaky) PIDs() ([]int, error) {
	if l.looks++; l.looks == 1 && l.first != nil {
		return nil, l.first
	}
	return l.fake.PIDs()
}

func TestNothingOutlivesTheMainProcess(t *testing.T) {
	b := newFakes(t)
	refused := errors.New("too many open files")
	for _, test := range []struct {
		name, end string
		first     error
		stop      bool
		want      int
	}{
		{name: "a call misses", end: "exit 3", want: 3},
		{name: "a call fails", end: "exit 3", first: refused, want: 3},
		{name: "a call fails at a forced stop", end: "sleep 1002", first: refused, stop: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := newLog()
			app := App{Name: "app", Main: func() (spec.Container, error) {
				c, err := b.make("/bin/sh", "-c", "trap '' TERM; sleep 1000 & setsid sleep 1001 & "+test.end)
				return &leaky{fake: c, first: test.first}, err
			}}
			logger := slog.New(slog.NewTextHandler(out, nil))
			pod := start(t, Config{Log: logger, Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{app}})
			if test.stop {
				pod.up().end()
			}
			if code, err := pod.wait(); code != test.want || err != nil {
				t.Errorf("Run() = %d, %v", code, err)
			}
			if log := out.String(); strings.Contains(log, "level=ERROR") {
				t.Errorf("log %s", log)
			}
			children.AwaitNone(t)
		})
	}
}

// A command that waits for its turn gives up when the app ends.
func TestExecDoesNotOutwaitTheApp(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "exit 0")
	other := App{Name: "other", Main: b.sh("exec sleep 1000")}
	app.Name = "app"
	pod := start(t, Config{Grace: 0, Apps: []App{app, other}}).up()
	pod.TakeCommandSlots("app")
	if s, err := pod.Exec("other", script("exit 0"), spec.Stdio{}); err != nil {
		t.Errorf("a command in another app: %v", err)
	} else {
		<-s.Done()
	}
	failed := make(chan error)
	go func() {
		_, err := pod.Exec("app", script("exit 0"), spec.Stdio{})
		failed <- err
	}()
	open()
	if err := <-failed; !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
}

// tardy is a container whose start succeeds in the moment in which its limit kills it; that kill misses its process.
type tardy struct {
	*fake
	first  sync.Once
	killed chan struct{} // closed by the first Kill
}

func (c *tardy) Start(stdio spec.Stdio) (spec.Running, error) {
	process, err := c.fake.Start(stdio)
	<-c.killed
	return process, err
}

func (c *tardy) Kill() error {
	missed := false
	c.first.Do(func() {
		close(c.killed)
		missed = true
	})
	if missed {
		return nil
	}
	return c.fake.Kill()
}

// An app, or a handler, that starts in the moment in which the limit of starts kills it has not started: the log and
// the app's status give the limit as the reason, and nothing of it is left.
func TestAStartThatItsLimitKillsAsItSucceedsHasFailed(t *testing.T) {
	const words = "not started within 50ms, and killed: the command started in that moment"
	for name, want := range map[string]string{"main": words, "pre-start": "pre-start handler: " + words} {
		t.Run(name, func(t *testing.T) {
			b := newFakes(t)
			app := App{Name: "app", Main: func() (spec.Container, error) {
				c, err := b.make("/bin/sh", "-c", "exec sleep 3")
				return &tardy{fake: c, killed: make(chan struct{})}, err
			}}
			if name == "pre-start" {
				app.Main, app.PreStart = b.sh("exit 0"), app.Main
			}
			out := newLog()
			pod := start(t, Config{StartLimit: 50 * time.Millisecond, Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{app}, Log: slog.New(slog.NewTextHandler(out, nil))})
			_, _ = pod.wait()
			status := pod.Status()[0]
			if status.State != StateExited || status.Error != want || status.Exit == nil || *status.Exit != (Exit{Code: 125, Reason: "not started"}) {
				t.Errorf("%+v, exit %+v, want error %q", status, status.Exit, want)
			}
			log := out.String()
			if !strings.Contains(log, `msg="app not started" app=app error="`+want+`"`) || strings.Contains(log, `"app started"`) || strings.Contains(log, `"app ended"`) {
				t.Errorf("log %s", log)
			}
			children.AwaitNone(t)
		})
	}
}

// hanging is a container in which no command's start ever ends, as on a dead NFS.
type hanging struct {
	*fake
	begun, over chan struct{}
	destroyed   atomic.Bool
}

func (h *hanging) Exec(spec.Command, spec.Stdio) (spec.Running, error) {
	close(h.begun)
	<-h.over
	return nil, errors.New("interrupted")
}

func (h *hanging) Destroy() error {
	h.destroyed.Store(true)
	return h.fake.Destroy()
}

// A command's start that hangs blocks neither its caller nor the end of the pod, and its container
// is not destroyed while the start is under way.
func TestACommandsStartThatHangsBlocksNothing(t *testing.T) {
	t.Parallel() // it waits for a limit
	b := newFakes(t)
	app, open := gated(t, b, "exit 0")
	out := newLog()
	h := &hanging{begun: make(chan struct{}), over: make(chan struct{})}
	main := app.Main
	app.Main = func() (spec.Container, error) {
		c, err := main()
		h.fake = c.(*fake)
		return h, err
	}
	app.Stdout, app.PostStop = out, b.sh("echo cleaned")
	pod := podOf(t, app)
	failed := make(chan error)
	go func() {
		_, err := pod.Exec("app", script("exit 0"), spec.Stdio{})
		failed <- err
	}()
	<-h.begun
	open()
	if err := <-failed; !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
	if code, err := pod.stopped(); code != 0 || err != nil || out.String() != "cleaned\n" {
		t.Errorf("Run() = %d, %v, output %q", code, err, out)
	}
	if h.destroyed.Load() {
		t.Error("the container was destroyed while a command was being started in it")
	}
	close(h.over)
	if err := h.Destroy(); err != nil {
		t.Error(err)
	}
}
