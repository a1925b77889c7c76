package supervisor

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/supervisor/output"
	"kurma.io/stager/tests/children"
)

// leaky is a container of which the first Kill misses what is just forked.
type leaky struct {
	*fake
	kills int
}

func (l *leaky) Kill() error {
	if l.kills++; l.kills == 1 {
		return nil
	}
	return l.fake.Kill()
}

func TestNothingOutlivesTheMainProcess(t *testing.T) {
	b := newFakes(t)
	pod := start(t, Config{Exit: ExitPolicy{WhenAllEnded: true}, Grace: time.Minute, Apps: []App{{
		Name: "app",
		Main: func() (Container, error) {
			c, err := b.make("/bin/sh", "-c", "trap '' TERM; sleep 1000 & setsid sleep 1001 & exit 3")
			return &leaky{fake: c}, err
		},
	}}})
	if code, err := pod.over(); code != 3 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	children.AwaitNone(t)
}

// full is a pod without apps whose slots are all taken, as by starts that hang.
func full(t *testing.T) *Pod {
	t.Helper()
	pod := NewPod(Config{Reaper: newReaper(t)})
	pod.output = output.NewCollector()
	t.Cleanup(pod.output.Close)
	for range parallelStarts {
		pod.slots <- struct{}{}
	}
	return pod
}

// A post-stop handler's limit also holds while it waits for its turn.
func TestPostStopDoesNotWaitForASlotForEver(t *testing.T) {
	limit := make(chan struct{})
	close(limit)
	r := newRun(&app{pod: full(t)})
	handler := func() (Container, error) {
		t.Error("it was started after its limit")
		return nil, errors.New("no")
	}
	if _, err := r.runHandler(handler, stop{forced: limit}); !errors.Is(err, errTooLate) {
		t.Errorf("%v", err)
	}
}

// A command that waits for its turn gives up when the app ends.
func TestExecDoesNotOutwaitTheApp(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "exit 0")
	other := App{Name: "other", Main: b.sh("exec sleep 1000")}
	app.Name = "app"
	pod := start(t, Config{Grace: 0, Apps: []App{app, other}}).up()
	hung := pod.apps[0]
	hung.mu.Lock()
	slots := hung.run.slots
	hung.mu.Unlock()
	for range parallelStarts {
		slots <- struct{}{}
	}
	if s, err := pod.Exec("other", script("exit 0"), Stdio{}); err != nil {
		t.Errorf("a command in another app: %v", err)
	} else {
		<-s.Done()
	}
	failed := make(chan error)
	go func() {
		_, err := pod.Exec("app", script("exit 0"), Stdio{})
		failed <- err
	}()
	open()
	if err := <-failed; !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
}

// hanging is a container in which no command's start ever ends, as on a dead NFS.
type hanging struct {
	*fake
	begun, over chan struct{}
	destroyed   atomic.Bool
}

func (h *hanging) Exec(Command, Stdio) (Process, error) {
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
func TestACommandsStartThatHangs(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "exit 0")
	out := newLog()
	h := &hanging{begun: make(chan struct{}), over: make(chan struct{})}
	main := app.Main
	app.Main = func() (Container, error) {
		c, err := main()
		h.fake = c.(*fake)
		return h, err
	}
	app.Stdout, app.PostStop = out, b.sh("echo cleaned")
	pod := podOf(t, app)
	failed := make(chan error)
	go func() {
		_, err := pod.Exec("app", script("exit 0"), Stdio{})
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

func TestExecErrorIsOneLine(t *testing.T) {
	for path, want := range map[string]string{
		"/bin/a b\\\"é": "exec /bin/a b\\\"é: no such file or directory",
		"/bin/a\nb":     `exec "/bin/a\nb": no such file or directory`,
		"/bin/\xff":     `exec "/bin/\xff": no such file or directory`,
		"/bin/\u2028":   `exec "/bin/\u2028": no such file or directory`,
	} {
		if got := (&ExecError{Path: path, Errno: syscall.ENOENT}).Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
