// Package supervisor keeps a pod's apps running: it starts, restarts and stops them. Its package output carries the
// apps' output to logs and attachments. It knows nothing of images, file systems and namespaces, which belong to a
// runtime (spec.Runtime).
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/output"
)

// parallelStarts bounds the containers that are started at once. On two cores
// 50 apps that libcontainer starts are up in 540 ms with 1, 400 with 2, 325 with 4, 313
// with 8. With 16 they are up no sooner, and take more memory at a time.
const parallelStarts = 8

// parallelCommands bounds the commands of an app that are started at once. Each may hold a thread (see ReserveThreads).
const parallelCommands = 4

var (
	// ErrNoApp means that the pod has no app of that name.
	ErrNoApp = errors.New("no such app")
	// ErrNotRunning means that the app's main process is not running now.
	ErrNotRunning = errors.New("app is not running")
)

// Config is what a Supervisor is made of.
type Config struct {
	Apps    []App // in the pod's order; names are unique
	Restart spec.RestartPolicy
	Exit    spec.ExitPolicy
	Grace   time.Duration // from SIGTERM, or App.StopSignal, to SIGKILL, the same moments for all apps; 0 for no grace
	Log     *slog.Logger  // nil for none

	// Changed, where not nil, is called for each change of an app's state or health, in the app's order. Several
	// calls may run at once, of one app only one, and the app's life goes on when it has returned. It must not call the
	// Supervisor.
	Changed func(Change)

	// StartLimit replaces the constant of this name, if it is not 0.
	StartLimit time.Duration
}

// Supervisor keeps a pod's apps running. Its methods may be called by several
// goroutines at once.
type Supervisor struct {
	// None of these is changed after New.
	config Config
	log    *slog.Logger
	apps   []*app
	slots  chan struct{} // one element for each container that is being started
	events chan event    // from the apps' goroutines to Run's
	stop   stop          // asked by Run's goroutine

	revivals chan revival // from Restart to Run's goroutine

	output *output.Collector // set by Run before it starts the apps' goroutines, which alone use it
}

type eventKind int

const (
	appStarted eventKind = iota // and is ready; or neither, because of err
	appEnded                    // for good
)

// event is what an app's goroutine reports to Run's.
type event struct {
	app  *app
	kind eventKind
	err  error
	exit Exit
}

// New makes a pod of apps that wait to be started.
func New(config Config) *Supervisor {
	p := &Supervisor{
		config: config,
		log:    config.Log,
		slots:  make(chan struct{}, parallelStarts),
		events: make(chan event, 2*len(config.Apps)),
		stop:   newStop(),

		revivals: make(chan revival),
	}
	if p.config.StartLimit == 0 {
		p.config.StartLimit = spec.StartLimit
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	for _, definition := range config.Apps {
		p.apps = append(p.apps, &app{
			App: definition, pod: p, requested: make(chan struct{}),
			status: AppStatus{Name: definition.Name, State: StateWaiting},
		})
	}
	return p
}

// Run starts all apps at once, calls ready when every app is (App.Ready, or
// else its main process executed), and keeps the pod until ctx ends or the
// exit policy ends it. Then, and after a failed start or ready, it stops the
// apps: SIGTERM, or App.StopSignal, to all main processes at once; after one grace period for all, SIGKILL to
// what is left; post-stop handlers. No process of the pod is left when Run returns, except
// one that SIGKILL does not end.
//
// The exit code is the exit policy's, or 0 when ctx ended the pod; the error
// names the app that could not be started. Run is called once.
func (p *Supervisor) Run(ctx context.Context, ready func() error) (int, error) {
	p.output = output.NewCollector()
	defer p.output.Close()
	l := loop{pod: p, ready: ready, unstarted: len(p.apps), living: len(p.apps)}
	for _, a := range p.apps {
		go a.live(true)
	}
	l.started()
	stop := ctx.Done()
	for l.living > 0 || !p.stop.isAsked() {
		select {
		case <-stop:
			stop = nil
			p.beginStop()
		case e := <-p.events:
			l.take(e)
		case r := <-p.revivals:
			l.revive(r)
		}
	}
	return l.code, l.err
}

// loop is the state of Run. Run's goroutine alone uses it.
type loop struct {
	pod               *Supervisor
	ready             func() error
	unstarted, living int     // apps that have not reported appStarted, appEnded
	ended             []event // of the apps that have ended for good, in this order
	code              int
	err               error
}

func (l *loop) take(e event) {
	if e.kind == appStarted {
		l.unstarted--
		if e.err != nil && !l.pod.stop.isAsked() {
			l.fail(fmt.Errorf("start app %q: %w", e.app.Name, e.err))
		}
		l.started()
		return
	}
	l.living--
	l.ended = append(l.ended, e)
	if l.pod.stop.isAsked() {
		return
	}
	var exits []Exit
	for _, one := range l.ended {
		exits = append(exits, one.exit)
	}
	if code, ends := verdict(l.pod.config.Exit, len(l.pod.apps), exits); ends {
		l.code = code
		l.pod.beginStop()
	}
}

// started calls ready when every app has started.
func (l *loop) started() {
	if l.unstarted > 0 || l.pod.stop.isAsked() {
		return
	}
	if err := l.ready(); err != nil {
		l.fail(fmt.Errorf("report readiness: %w", err))
	}
}

func (l *loop) fail(err error) {
	l.err = err
	l.code = 1
	l.pod.beginStop()
}

// beginStop is called by Run's goroutine only.
func (p *Supervisor) beginStop() {
	if p.stop.isAsked() {
		return
	}
	p.log.Info("pod stops", "grace", p.config.Grace)
	p.stop.ask(p.config.Grace)
}

// spawn starts a process when one of the slots is free. It gives up, and returns
// why, when end closes first. A start that hangs keeps its slot for twice its limit at most, so that it
// blocks only itself.
func (p *Supervisor) spawn(
	slots chan struct{}, limit time.Duration, end <-chan struct{}, why error, start func() (spec.Running, error),
) (spec.Running, error) {
	select {
	case slots <- struct{}{}:
	case <-end:
		return nil, why
	}
	leave := sync.OnceFunc(func() { <-slots })
	defer leave()
	defer time.AfterFunc(2*limit, leave).Stop()
	if closed(end) {
		return nil, why
	}
	return start()
}

// Status returns the apps' states in the pod's order. It never waits for a start.
func (p *Supervisor) Status() []AppStatus {
	all := make([]AppStatus, 0, len(p.apps))
	for _, a := range p.apps {
		all = append(all, a.snapshot())
	}
	return all
}

func (p *Supervisor) find(name string) (*app, error) {
	for _, a := range p.apps {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("app %q: %w", name, ErrNoApp)
}
