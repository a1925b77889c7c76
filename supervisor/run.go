package supervisor

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

const (
	// postStopLimit bounds the post-stop handler, within the pod's stop.
	postStopLimit = 10 * time.Second
	// killLimit bounds the wait for processes that have been sent SIGKILL:
	// one in uninterruptible sleep must not keep the pod from ending.
	killLimit = 5 * time.Second
	// tellLimit bounds how long the end of a main process is kept back for its last
	// output, which a log that is stuck keeps from ever getting there.
	tellLimit = time.Second
	// killAgain is how often SIGKILL goes to what is left.
	killAgain = 5 * time.Millisecond
)

var (
	errStopping = errors.New("the pod stops")
	errTooLate  = errors.New("not started in time")
)

// run is one run of an app: handlers, main process, and what is started
// beside it.
type run struct {
	app     *app
	begun   bool // the pre-start handler, or the main process, was tried
	main    Container
	child   *Child
	streams *streams

	users sync.WaitGroup // sessions, and starts of such
	slots chan struct{}  // of commands that start: those that hang are in the way of their own app's only
	// ended is closed when the main process has ended: no further users.
	ended chan struct{}
	// abandoned is closed when users that do not end are waited for no more.
	abandoned chan struct{}
}

func newRun(a *app) *run {
	return &run{app: a, slots: make(chan struct{}, parallelStarts), ended: make(chan struct{}), abandoned: make(chan struct{})}
}

// handlerError is a handler that did not exit 0.
type handlerError struct {
	name string
	exit Exit
}

func (e *handlerError) Error() string {
	if e.exit.Reason != "" {
		return e.name + " handler " + e.exit.Reason
	}
	return fmt.Sprintf("%s handler exited %d", e.name, e.exit.Code)
}

// failedExit is the Exit of an app whose main process was not started.
func failedExit(err error) Exit {
	var handler *handlerError
	if errors.As(err, &handler) {
		return Exit{Code: handler.exit.Code, Reason: handler.name + " failed"}
	}
	var execErr *ExecError
	if errors.As(err, &execErr) {
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
	if a.pod.stopping() {
		return errStopping
	}
	r.begun = true
	streams, err := openStreams(&a.App, a.pod)
	if err != nil {
		return fmt.Errorf("open output of app %q: %w", a.Name, err)
	}
	r.streams = streams
	a.transition(StateStarting, nil)
	a.mu.Lock()
	a.run = r
	a.mu.Unlock()
	if err := r.handle("pre-start", a.PreStart); err != nil {
		return err
	}
	return r.startMain()
}

func (r *run) startMain() error {
	a := r.app
	child, err := a.pod.spawn(a.pod.slots, a.pod.stop, errStopping, func() (Process, error) {
		box, err := a.Main()
		if err != nil {
			return nil, err
		}
		r.main = box
		return startBox(box, r.streams.stdio, a.pod.graceOver)
	})
	if err != nil {
		return err
	}
	r.child = child
	r.streams.started()
	a.transition(StateRunning, func(s *AppStatus) { s.PID = child.PID() })
	a.pod.log.Info("app started", "app", a.Name, "pid", child.PID())
	return nil
}

// startBox starts a container. A start that is not over when force closes is ended
// by the death of its processes.
func startBox(box Container, stdio Stdio, force <-chan struct{}) (Process, error) {
	started := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-started:
			return
		case <-force:
		}
		again := time.NewTicker(killAgain)
		defer again.Stop()
		for {
			_ = box.Kill() // comes again
			select {
			case <-started:
				return
			case <-again.C:
			}
		}
	})
	defer watch.Wait()
	defer close(started)
	return box.Start(stdio)
}

// handle runs an event handler to its end; with the pod's stop it is ended.
func (r *run) handle(name string, box func() (Container, error)) error {
	if box == nil {
		return nil
	}
	pod := r.app.pod
	stop, force := pod.stop, pod.graceOver
	if name == "post-stop" {
		limit := make(chan struct{})
		timer := time.AfterFunc(postStopLimit, func() { close(limit) })
		defer timer.Stop()
		stop, force = nil, limit
	}
	exit, err := r.runHandler(box, stop, force)
	if err != nil {
		return fmt.Errorf("%s handler: %w", name, err)
	}
	if exit.Code != 0 {
		return &handlerError{name: name, exit: exit}
	}
	return nil
}

// runHandler sends the handler SIGTERM at stop and kills it at force. It does not
// start it any more after stop, or without one after force.
func (r *run) runHandler(make func() (Container, error), stop, force <-chan struct{}) (exit Exit, err error) {
	a := r.app
	output := App{Stdout: a.Stdout, Stderr: a.Stderr}
	streams, err := openStreams(&output, a.pod)
	if err != nil {
		return Exit{}, fmt.Errorf("open output: %w", err)
	}
	defer func() { streams.finish(exit) }()
	var box Container
	over, why := stop, errStopping
	if stop == nil {
		over, why = force, errTooLate
	}
	child, err := a.pod.spawn(a.pod.slots, over, why, func() (Process, error) {
		var err error
		if box, err = make(); err != nil {
			return nil, err
		}
		return startBox(box, streams.stdio, force)
	})
	if box != nil {
		defer func() { a.destroy(box) }()
	}
	if err != nil {
		return Exit{}, err
	}
	streams.started()
	_, err = waitChild(child, box, stop, force)
	if killErr := empty(box, nobody()); err == nil && killErr != nil {
		err = fmt.Errorf("kill what it left: %w", killErr)
	}
	if err != nil {
		return Exit{}, err
	}
	return child.Exit(), nil
}

// waitChild waits for the end of a process: by itself; after SIGTERM, sent
// when stop closes; or after SIGKILL to its whole cgroup, when force closes.
// The error says that even that did not end it.
func waitChild(child *Child, box Container, stop, force <-chan struct{}) (forced bool, err error) {
	for {
		select {
		case <-child.Done():
			return false, nil
		case <-stop:
			stop = nil
			// It may have ended just now.
			_ = child.Signal(syscall.SIGTERM)
		case <-force:
			if err := box.Kill(); err != nil {
				return true, err
			}
			select {
			case <-child.Done():
				return true, nil
			case <-time.After(killLimit):
				return true, fmt.Errorf("process %d survives SIGKILL", child.PID())
			}
		}
	}
}

// wait waits for the end of the main process.
func (r *run) wait() Exit {
	pod := r.app.pod
	forced, err := waitChild(r.child, r.main, pod.stop, pod.graceOver)
	if err != nil {
		pod.log.Error("app does not end", "app", r.app.Name, "error", err)
		return Exit{Code: 128 + int(syscall.SIGKILL), Reason: syscall.SIGKILL.String()}
	}
	exit := r.child.Exit()
	if box, ok := r.main.(interface{ OOMKilled() bool }); ok && exit.killed() && !forced && box.OOMKilled() {
		exit.Reason = reasonOOM
	}
	return exit
}

// end kills what the main process left, sessions included, hands on the last
// output, and runs the post-stop handler. cause is why the main process
// was not started, if it was not.
func (r *run) end(exit Exit, cause error) {
	a := r.app
	if cause == nil {
		a.pod.log.Info("app ended", "app", a.Name, "code", exit.Code, "reason", exit.Reason)
	}
	a.transition(StateEnding, func(*AppStatus) { close(r.ended) })
	last := make(chan struct{})
	go func() {
		defer close(last)
		r.finish(exit)
	}()
	select {
	case <-last:
	case <-time.After(tellLimit):
	}
	a.transition(StateEnding, func(s *AppStatus) {
		s.Exit = &exit
		if cause != nil {
			s.Error = cause.Error()
		}
	})
	<-last
	a.mu.Lock()
	a.run = nil
	a.mu.Unlock()
	r.destroyMain()
	if r.begun {
		if err := r.handle("post-stop", a.PostStop); err != nil {
			a.pod.log.Error("post-stop failed", "app", a.Name, "error", err)
		}
	}
}

// finish kills what the main process left and hands on the last output.
func (r *run) finish(exit Exit) {
	if r.child != nil {
		r.killAll()
	}
	if r.streams != nil {
		r.streams.finish(exit)
	}
}

// killAll kills the processes in the app's cgroup until none is left and the
// sessions, and the starts of such that were under way, are over; or until it has
// taken too long, which abandons those that are not.
func (r *run) killAll() {
	idle := make(chan struct{})
	go func() {
		r.users.Wait()
		close(idle)
	}()
	if err := empty(r.main, idle); err != nil {
		r.app.pod.log.Error("kill processes of app", "app", r.app.Name, "error", err)
	}
	select {
	case <-idle:
	case <-time.After(killLimit):
		close(r.abandoned)
	}
}

// destroyMain destroys the main process's container, but for one in which a command
// that cannot be killed is still being started, or runs: Destroy comes after everything
// else. What such a one holds, it holds until the pod ends.
func (r *run) destroyMain() {
	a := r.app
	select {
	case <-r.abandoned:
		a.pod.log.Error("container of app not destroyed: a command in it does not end", "app", a.Name)
	default:
		if r.main != nil {
			a.destroy(r.main)
		}
	}
}

// empty kills the processes in a container's cgroup until idle is closed and
// none is left: what is just being started may escape a single Kill.
func empty(box Container, idle <-chan struct{}) error {
	again := time.NewTicker(killAgain)
	defer again.Stop()
	limit := time.After(killLimit)
	tooLong := errors.New("some survive SIGKILL")
	for {
		if err := box.Kill(); err != nil {
			return err
		}
		select {
		case <-idle:
		case <-again.C:
			continue
		case <-limit:
			return tooLong
		}
		if pids, err := box.PIDs(); err != nil || len(pids) == 0 {
			return err
		}
		select {
		case <-again.C:
		case <-limit:
			return tooLong
		}
	}
}

// nobody is an idle for empty where there are no sessions.
func nobody() <-chan struct{} {
	idle := make(chan struct{})
	close(idle)
	return idle
}

func (a *app) destroy(box Container) {
	if err := box.Destroy(); err != nil {
		a.pod.log.Error("destroy container of app", "app", a.Name, "error", err)
	}
}
