// Package supervisor keeps a pod's apps running as PID 1, or as a child
// subreaper: it starts them, reaps, takes their output to the logs and to
// attachments, restarts and stops them. It knows nothing of images, file systems
// and namespaces: those are a Container's.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// parallelStarts bounds the containers that are started at once. On two cores
// 50 libcontainer apps are up in 540 ms with 1, 400 with 2, 325 with 4, 313
// with 8 and no sooner with 16, which only take more memory at a time.
const parallelStarts = 8

var (
	// ErrNoApp means that the pod has no app of that name.
	ErrNoApp = errors.New("no such app")
	// ErrNotRunning means that the app's main process does not run now.
	ErrNotRunning = errors.New("app is not running")
)

// Config is what a Pod is made of. Only Reaper is required.
type Config struct {
	Apps    []App // in the pod's order; names are unique
	Reaper  *Reaper
	Restart RestartPolicy
	Exit    ExitPolicy
	Grace   time.Duration // from SIGTERM to SIGKILL, one for all apps; 0 is none
	Log     *slog.Logger  // nil for none
}

// Pod keeps a pod's apps running. Its methods may be called by several
// goroutines at once.
type Pod struct {
	config  Config
	log     *slog.Logger
	apps    []*app
	slots   chan struct{}
	events  chan event
	buffers *bufferPool
	poller  *poller // from Run on

	stop      chan struct{} // closed when the stop begins
	graceOver chan struct{} // closed when the grace period is over
}

type eventKind int

const (
	appStarted eventKind = iota // or not: err
	appEnded                    // for good
)

// event is what an app's goroutine tells the pod's.
type event struct {
	app  *app
	kind eventKind
	err  error
	exit Exit
}

// NewPod makes a pod of apps that wait to be started.
func NewPod(config Config) *Pod {
	p := &Pod{
		config:    config,
		log:       config.Log,
		slots:     make(chan struct{}, parallelStarts),
		events:    make(chan event, 2*len(config.Apps)),
		buffers:   newBufferPool(),
		stop:      make(chan struct{}),
		graceOver: make(chan struct{}),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	for _, definition := range config.Apps {
		p.apps = append(p.apps, &app{
			App: definition, pod: p,
			status: AppStatus{Name: definition.Name, State: StateWaiting},
		})
	}
	return p
}

// Run starts all apps at once, calls ready when every app is (App.Ready, or
// else its main process executed), and keeps the pod until ctx ends or the
// exit policy ends it. Then, and after a failed start or ready, it stops the
// apps: SIGTERM to all main processes at once, SIGKILL to all that is left after
// one grace period for all, post-stop handlers. No process of the pod is left
// when it returns.
//
// The exit code is the exit policy's, or 0 when ctx ended the pod; the error
// names the app that could not be started. Run is called once.
func (p *Pod) Run(ctx context.Context, ready func() error) (int, error) {
	p.poller = newPoller()
	defer p.poller.close()
	l := loop{pod: p, ready: ready, unstarted: len(p.apps), living: len(p.apps)}
	for _, a := range p.apps {
		go a.live()
	}
	l.started()
	stop := ctx.Done()
	for l.living > 0 || !p.stopping() {
		select {
		case <-stop:
			stop = nil
			p.beginStop()
		case e := <-p.events:
			l.take(e)
		}
	}
	return l.code, l.err
}

// loop is what Run's goroutine alone knows.
type loop struct {
	pod               *Pod
	ready             func() error
	unstarted, living int
	ended             []Exit
	code              int
	err               error
}

func (l *loop) take(e event) {
	if e.kind == appStarted {
		l.unstarted--
		if e.err != nil && !l.pod.stopping() {
			l.fail(fmt.Errorf("start app %q: %w", e.app.Name, e.err))
		}
		l.started()
		return
	}
	l.living--
	l.ended = append(l.ended, e.exit)
	if l.pod.stopping() {
		return
	}
	if code, over := l.pod.config.Exit.verdict(len(l.pod.apps), l.ended); over {
		l.code = code
		l.pod.beginStop()
	}
}

// started calls ready when nothing is left to start.
func (l *loop) started() {
	if l.unstarted > 0 || l.pod.stopping() {
		return
	}
	if err := l.ready(); err != nil {
		l.fail(fmt.Errorf("tell readiness: %w", err))
	}
}

func (l *loop) fail(err error) {
	l.err = err
	l.code = 1
	l.pod.beginStop()
}

// beginStop is called by Run's goroutine only.
func (p *Pod) beginStop() {
	if p.stopping() {
		return
	}
	p.log.Info("pod stops", "grace", p.config.Grace)
	close(p.stop)
	time.AfterFunc(p.config.Grace, func() { close(p.graceOver) })
}

func (p *Pod) stopping() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// spawn starts a process when one of the slots is free. It gives up, and returns
// why, when over closes first.
func (p *Pod) spawn(slots chan struct{}, over <-chan struct{}, why error, start func() (Process, error)) (*Child, error) {
	select {
	case slots <- struct{}{}:
	case <-over:
		return nil, why
	}
	defer func() { <-slots }()
	select {
	case <-over:
		return nil, why
	default:
	}
	return p.config.Reaper.Spawn(start)
}

// Status tells the apps' states in the pod's order. It never waits for a start.
func (p *Pod) Status() []AppStatus {
	all := make([]AppStatus, 0, len(p.apps))
	for _, a := range p.apps {
		all = append(all, a.snapshot())
	}
	return all
}

func (p *Pod) find(name string) (*app, error) {
	for _, a := range p.apps {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("app %q: %w", name, ErrNoApp)
}
