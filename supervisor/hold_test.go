package supervisor_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
)

// holder is a fake that can be held.
type holder struct {
	*fake
	wait func() error
	made chan<- struct{} // closed when only the wait is left
}

func (h *holder) Hold(wait func() error) { h.wait = wait }

func (h *holder) Start(stdio spec.Stdio) (spec.Running, error) {
	close(h.made)
	if h.wait != nil {
		if err := h.wait(); err != nil {
			return nil, err
		}
	}
	return h.fake.Start(stdio)
}

// held is a factory of one holder that runs a shell script.
func (b *fakes) held(script string) (factory func() (spec.Container, error), made <-chan struct{}) {
	done := make(chan struct{})
	return func() (spec.Container, error) {
		c, err := b.make("/bin/sh", "-c", script)
		return &holder{fake: c, made: done}, err
	}, done
}

// tells is a factory that tells when it is called.
func tells(called *sync.WaitGroup, factory func() (spec.Container, error)) func() (spec.Container, error) {
	called.Add(1)
	return func() (spec.Container, error) {
		defer called.Done()
		return factory()
	}
}

// A container that can be held is made meanwhile, any other one and handlers wait, and nothing runs before.
func TestHeldAppsRunAfterwards(t *testing.T) {
	b := newFakes(t)
	out, release := newLog(), make(chan struct{})
	main, made := b.held("echo held; exec sleep 1000")
	var called sync.WaitGroup
	pod := start(t, Config{Held: release, Apps: []App{
		{Name: "held", Main: main, Stdout: out},
		{Name: "plain", Main: tells(&called, b.sh("echo plain; exec sleep 1000")), Stdout: out},
		{Name: "handled", PreStart: tells(&called, b.sh("echo before")), Main: b.sh("exec sleep 1000"), Stdout: out},
	}})
	<-made
	called.Wait()
	time.Sleep(20 * time.Millisecond) //nolint:forbidigo // in which what is not held starts
	for _, app := range pod.Status() {
		if app.State != StateStarting {
			t.Errorf("app %+v runs", app)
		}
	}
	if text := out.String(); text != "" {
		t.Errorf("output %q before the end of the hold", text)
	}
	close(release)
	pod.up()
	for _, word := range []string{"held", "plain", "before"} {
		out.await(word)
	}
}

// Of a pod that is stopped before its apps may run, nothing has run, and no post-stop handler does.
func TestStopEndsAHold(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	main, made := b.held("echo main")
	cleaned := func() (spec.Container, error) { return nil, errors.New("no post-stop handler may run") }
	pod := start(t, Config{Held: make(chan struct{}), Grace: time.Minute, Apps: []App{
		{Name: "held", Main: main, Stdout: out, PostStop: func() (spec.Container, error) { t.Error("post-stop"); return cleaned() }},
		{Name: "plain", Main: b.sh("echo main"), Stdout: out, PostStop: func() (spec.Container, error) { t.Error("post-stop"); return cleaned() }},
	}})
	<-made
	if code, err := pod.stopped(); code != 0 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	for _, app := range pod.Status() {
		if app.State != StateExited || app.Exit == nil || *app.Exit != (Exit{143, "stopped before its start"}) {
			t.Errorf("status %+v, exit %+v", app, app.Exit)
		}
	}
	if text := out.String(); text != "" {
		t.Errorf("output %q", text)
	}
}
