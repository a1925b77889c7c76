package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/output"
)

// lastOutputLimit bounds how long the end of a main process is not reported because its last
// output is not in the log yet: a log that is stuck may never take it.
const lastOutputLimit = 5 * time.Second

// outputLimit bounds the wait of each container's end for the last output itself: a log, or the file of a daemon such
// as a terminal that is stopped, may never take it. Only the app's next run waits until it is taken.
const outputLimit = 10 * time.Second

// run is one run of an app: handlers, main process, and the commands of Exec, its sessions.
type run struct {
	app *app // not changed
	// slots has one element for each command that is being started. Starts that hang
	// block only other commands of the same app.
	slots chan struct{}
	// ended is closed by end, with app.mu held, when the main process has ended or was not
	// started. Every session and everything that waits to start one reads it.
	ended chan struct{}
	// abandoned is closed by killAll when it no longer waits for sessions that do not end.
	// The sessions and their callers read it.
	abandoned chan struct{}
	// sessions counts commands and starts of commands. join adds to it, with
	// app.mu held and before ended is closed; killAll waits for it.
	sessions sync.WaitGroup

	exit Exit // guarded by app.mu; how the run ended, set before ended is closed

	begun bool // the app's goroutine only; the pre-start handler, or the main process, was tried

	// The app's goroutine sets streams before it sets app.run, and main and child before
	// it moves the app to StateRunning. They are not changed after that. Other goroutines read
	// them only after they have seen app.run (Attach) or StateRunning (join) under app.mu.
	streams *output.Streams
	main    spec.Container
	child   spec.Running

	// Of the health checks. The app's goroutine sets watched before it starts watch, which closes it at its end; nil for
	// none. check is watch's until then: closed when the latest check has ended, nil for none. settled gets the first
	// health of the run that is not starting.
	watched chan struct{}
	check   <-chan struct{}
	settled chan Health
}

func newRun(a *app) *run {
	return &run{
		app: a, slots: make(chan struct{}, parallelCommands),
		ended: make(chan struct{}), abandoned: make(chan struct{}), settled: make(chan Health, 1),
	}
}

// failedExit returns the Exit of an app after err in the start of its main process.
func failedExit(err error) Exit {
	if handler, ok := errors.AsType[*handlerError](err); ok {
		return Exit{Code: handler.exit.Code, Reason: handler.name + " failed"}
	}
	if execErr, ok := errors.AsType[*spec.ExecError](err); ok {
		return Exit{Code: execErr.ExitCode(), Reason: "not executed"}
	}
	if errors.Is(err, errStopping) {
		return Exit{Code: 128 + int(syscall.SIGTERM), Reason: "stopped before its start"}
	}
	return Exit{Code: 125, Reason: "not started"}
}

// start runs the pre-start handler and starts the main process.
func (r *run) start() error {
	a := r.app
	a.transition(StateStarting, nil)
	if a.pod.stop.isAsked() {
		return errStopping
	}
	r.begun = true
	streams, err := a.pod.output.Open(a.outputOptions())
	if err != nil {
		return fmt.Errorf("open output of app %q: %w", a.Name, err)
	}
	r.streams = streams
	a.mu.Lock()
	a.run = r
	a.mu.Unlock()
	if err := r.handle("pre-start", a.PreStart, a.pod.stop); err != nil {
		return err
	}
	return r.startMain()
}

func (r *run) startMain() error {
	a := r.app
	stdio := stdioOf(r.streams)
	stdio.Width, stdio.Height = a.Width, a.Height
	main, child, err := a.pod.launch(a.Main, stdio, a.pod.stop)
	r.main, r.child = main, child
	if err != nil {
		return err
	}
	r.streams.Started()
	a.transition(StateRunning, func(s *AppStatus) {
		s.PID = child.PID()
		if a.Health != nil {
			s.Health = &Health{State: HealthStarting}
		}
	})
	a.pod.log.Info("app started", "app", a.Name, "pid", child.PID())
	if a.Health != nil {
		r.watched = make(chan struct{})
		go r.watch(a.Health)
	}
	return nil
}

// outputOptions are the streams of the app's main process.
func (a *app) outputOptions() output.Options {
	o := a.handlerOutput()
	o.Terminal, o.OpenStdin = a.Terminal, a.OpenStdin
	o.Stdin, o.OutFile, o.ErrFile = a.Stdin, a.OutFile, a.ErrFile
	return o
}

func stdioOf(s *output.Streams) spec.Stdio {
	return spec.Stdio{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Terminal: s.Console != nil, Console: s.Console}
}

// launch makes a container and starts it in one of the pod's slots, unless the first moment of end comes before.
// c, where not nil, is the caller's to destroy, also after an error.
func (p *Supervisor) launch(
	container func() (spec.Container, error), stdio spec.Stdio, end stop,
) (c spec.Container, child spec.Running, err error) {
	late := false
	begins, why := end.begins()
	child, err = p.spawn(p.slots, p.config.StartLimit, begins, why, func() (process spec.Running, err error) {
		made, err := container()
		if err != nil {
			return nil, err
		}
		c = made
		process, late, err = p.startContainer(c, stdio, end.forced)
		return process, err
	})
	if !late {
		return c, child, err
	}
	if err == nil { // the kill may have missed the process, which had just started
		err = errors.New("the command started in that moment")
		if killErr := killUntilEmpty(c, child.Done()); killErr != nil {
			err = fmt.Errorf("%w: %w", err, killErr)
		}
	}
	return c, nil, fmt.Errorf("not started within %s, and killed: %w", p.config.StartLimit, err)
}

// startContainer starts a container. When forced closes, or the pod's limit has passed, which late reports, it kills
// the container's processes until Start returns. Even then Start may succeed.
func (p *Supervisor) startContainer(
	c spec.Container, stdio spec.Stdio, forced <-chan struct{},
) (process spec.Running, late bool, err error) {
	started := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-started:
			return
		case <-forced:
		case <-time.After(p.config.StartLimit):
			late = true
		}
		_ = killUntil(c, started, nil)
	})
	process, err = c.Start(stdio)
	close(started)
	watch.Wait()
	return process, late, err
}

// wait waits for the end of the main process.
func (r *run) wait() Exit {
	pod := r.app.pod
	forced, err := waitChild(r.child, r.main, r.app.ends(r.child.Done()), cmp.Or(r.app.StopSignal, syscall.SIGTERM))
	if err != nil {
		pod.log.Error("app does not end", "app", r.app.Name, "error", err)
		return Exit{Code: 128 + int(syscall.SIGKILL), Reason: syscall.SIGKILL.String()}
	}
	status := r.child.Status()
	exit := exitOf(status)
	if c, ok := r.main.(spec.OOMReporter); ok && status.Signal() == syscall.SIGKILL && !forced && c.OOMKilled() {
		exit.Reason = "oom-killed"
	}
	return exit
}

// end kills the processes that the main process left, sessions included, passes on the last
// output, and runs the post-stop handler. cause is why the main process
// was not started, nil when it was.
func (r *run) end(exit Exit, cause error) {
	a := r.app
	if cause == nil {
		a.pod.log.Info("app ended", "app", a.Name, "code", exit.Code, "reason", exit.Reason)
	}
	a.mu.Lock()
	r.exit = exit
	close(r.ended)
	a.mu.Unlock()
	a.transition(StateEnding, nil)
	change := Change{State: StateEnding}
	if cause == nil {
		change.Code, change.Reason = &exit.Code, exit.Reason
	} else {
		change.Reason = cause.Error()
		if execErr := (*spec.ExecError)(nil); errors.As(cause, &execErr) {
			change.NotExecuted = execErr.ExitCode()
		}
	}
	a.changed(change)
	last := make(chan struct{})
	go func() {
		defer close(last)
		r.finish()
	}()
	select {
	case <-last:
	case <-time.After(lastOutputLimit):
	}
	a.mu.Lock()
	a.status.Exit = &exit
	if cause != nil {
		a.status.Error = cause.Error()
	}
	a.mu.Unlock()
	<-last
	a.mu.Lock()
	a.run = nil
	a.mu.Unlock()
	r.destroyMain()
	if !r.begun {
		return
	}
	limit, release := limited(postStopLimit)
	defer release()
	if err := r.handle("post-stop", a.PostStop, limit); err != nil {
		a.pod.log.Error("post-stop failed", "app", a.Name, "error", err)
	}
}

// finish kills the processes that the main process left and passes on the last output.
func (r *run) finish() {
	if r.child != nil {
		r.killAll()
	}
	if r.streams == nil {
		return
	}
	passed := []<-chan struct{}{finishing(r.streams)}
	if r.watched != nil {
		<-r.watched
	}
	if r.check != nil {
		passed = append(passed, r.check)
	}
	r.app.passLast(passed...)
}

// finishing returns a channel that is closed when the last output of processes that have ended is passed on.
func finishing(streams *output.Streams) <-chan struct{} {
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		streams.Finish()
	}()
	return passed
}

// passLast waits until last output is passed on, or leaves it to its goroutines after outputLimit.
func (a *app) passLast(all ...<-chan struct{}) {
	late, release := limited(outputLimit)
	defer release()
	for _, passed := range all {
		select {
		case <-passed:
			continue
		case <-late.forced:
		}
		if closed(passed) {
			continue
		}
		a.pod.log.Error("last output of app is not taken by its log or file", "app", a.Name, "limit", outputLimit)
		a.untaken = append(a.untaken, passed)
	}
}

// killAll kills the processes in the app's cgroup until none is left and every session
// has ended, including sessions under way. After killLimit it abandons the sessions
// that have not ended.
func (r *run) killAll() {
	idle := make(chan struct{})
	go func() {
		r.sessions.Wait()
		close(idle)
	}()
	if err := killUntilEmpty(r.main, idle); err != nil {
		r.app.pod.log.Error("kill processes of app", "app", r.app.Name, "error", err)
	}
	select {
	case <-idle:
	case <-time.After(killLimit):
		close(r.abandoned)
	}
}

// destroyMain destroys the main process's container, unless a command in it
// that cannot be killed is still being started, or runs: no other call may be under
// way with Destroy. Such a container keeps what it holds until the pod ends.
func (r *run) destroyMain() {
	a := r.app
	if closed(r.abandoned) {
		a.pod.log.Error("container of app not destroyed: a command in it does not end", "app", a.Name)
		return
	}
	if r.main != nil {
		a.destroy(r.main)
	}
}

func (a *app) destroy(c spec.Container) {
	if err := c.Destroy(); err != nil {
		a.pod.log.Error("destroy container of app", "app", a.Name, "error", err)
	}
}
