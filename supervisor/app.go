package supervisor

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"kurma.io/stager/spec"
)

// App is the definition of one app of a pod. It is not changed after New.
type App struct {
	Name string

	// Main makes the container of the app's main process. The supervisor calls it once
	// for each run of the app, and destroys every container that it
	// returns, except one in which a command does not end even by
	// SIGKILL. The caller of Supervisor.Run cleans up the root, and what else belongs to the app beyond
	// one run, after Supervisor.Run.
	Main func() (spec.Container, error)

	// PreStart and PostStop make the containers of the event handlers (appc,
	// aci.md, eventHandlers), with the contract of Main; nil for none. Main
	// starts after PreStart's process has exited 0. PostStop runs, for at most
	// 10 s, after every run in which PreStart was tried, however the run ended.
	PreStart, PostStop func() (spec.Container, error)

	// Ready, where not nil, returns nil once the app is ready, or the reason why it never
	// will be; without it an app is ready when its main process has been
	// executed. It is called once, in the first run; ctx ends with the main process.
	Ready func(ctx context.Context) error

	// Stdout and Stderr are the app's log, which also gets a terminal's output and
	// that of the handlers. Each Write gets the bytes of one read, and must not
	// keep them. Writes to the two, and to one while a handler's
	// descendant still writes, may be concurrent. Supervisor closes neither.
	Stdout, Stderr io.Writer

	// Ended, where not nil, is called once, when the app has ended for good,
	// its last output is in Stdout and Stderr and no handler will run any more;
	// the app becomes StateExited only after it.
	Ended func()

	// Again, where not nil, is called before an app that has ended for good is started again: Stdout and Stderr are
	// written again when it returns nil, and Ended is called again when the app has ended. After an error nothing has
	// changed, and the app stays as it is.
	Again func() error

	// Terminal, OpenStdin, Stdin, OutFile and ErrFile are those of each run, see output.Options; no file is closed.
	Terminal, OpenStdin     bool
	Stdin, OutFile, ErrFile *os.File

	// Width and Height are the size of the terminal at the start of each run.
	Width, Height uint16

	// StdinOnce says that the pipe of OpenStdin ends with the input of the first attachment that has one.
	StdinOnce bool

	// Health is how the health of each run is checked, nil for not at all.
	Health *spec.HealthCheck

	// StopSignal asks the main process to end when the pod stops; 0 for SIGTERM. Event handlers always get SIGTERM.
	StopSignal syscall.Signal
}

// State is where an app is in its life:
//
//	waiting ──► starting ──► running ──► ending ──► exited
//	              │    ▲                  ▲  │        ▲
//	              └────┼──────────────────┘  │        │
//	                   └──── restarting ◄────┘        │
//	                              └───────────────────┘
//
// exited goes to restarting where Restart starts an app that has ended for good. starting goes to ending where the main
// process is not started: after a failure, or because the pod stops. restarting goes to exited when the pod stops.
// ending is the time from the main process's end, or the failure to start
// it, until what it left has been killed and the post-stop handler has ended.
//
// A move without an arrow here is refused (app.transition).
type State string

// The states of an app.
const (
	StateWaiting    State = "waiting"    // Run has not begun to start it
	StateStarting   State = "starting"   // pre-start handler, main process's preparation
	StateRunning    State = "running"    // the main process has been executed and has not ended
	StateEnding     State = "ending"     // see above
	StateRestarting State = "restarting" // waits for the back-off to pass, and for output that was not taken in time
	StateExited     State = "exited"     // for good, but for Restart
)

// mayBecome returns whether the diagram has an arrow from s to next.
func (s State) mayBecome(next State) bool {
	switch s {
	case StateWaiting, StateRestarting:
		return next == StateStarting || s == StateRestarting && next == StateExited
	case StateStarting:
		return next == StateRunning || next == StateEnding
	case StateRunning:
		return next == StateEnding
	case StateEnding:
		return next == StateRestarting || next == StateExited
	case StateExited:
		return next == StateRestarting
	default:
		return false
	}
}

// AppStatus is one app's state at one moment.
type AppStatus struct {
	Name  string
	State State
	// PID is the main process's number in the supervisor's PID namespace, 0
	// unless State is StateRunning.
	PID int
	// Exit is how the latest run ended, nil before the end of the first,
	// while the next one starts or runs, and in StateEnding until the main process's last
	// output is in the log, for five seconds at most: once it is set, all output is in the log.
	// Callers must not change it.
	Exit *Exit
	// Last is how the run before the latest one ended, nil before the second. Callers must not change it.
	Last *Exit
	// Error is why the latest run was not started, "" when it was.
	Error string
	// Restarts counts the runs after the first.
	Restarts int
	// Health is that of the app, nil unless State is StateRunning and App.Health is set. Callers must not change it.
	Health *Health
}

// Change is a change of an app's state or of its health, and the line of JSON of names.EventsFile that reports it.
type Change struct {
	Time   time.Time   `json:"time"`
	App    string      `json:"app"`
	State  State       `json:"state,omitempty"`  // "" for a change of the health
	Health HealthState `json:"health,omitempty"` // "" for a change of the state
	// Code is the exit code of the main process that has ended, of StateEnding; nil if it was not started.
	Code *int `json:"exitCode,omitempty"`
	// Reason, of StateEnding, is that of the Exit, or why the main process was not started; of Unhealthy it is the
	// Health's.
	Reason string `json:"reason,omitempty"`
	// NotExecuted, of StateEnding, is the exit code of a shell for a program that could not be executed: 127 if it is
	// missing, else 126; 0 for any other end.
	NotExecuted int `json:"notExecuted,omitempty"`
}

// changed reports a change of the app's state.
func (a *app) changed(c Change) {
	if a.pod.config.Changed == nil {
		return
	}
	c.Time, c.App = time.Now().UTC(), a.Name
	a.pod.config.Changed(c)
}

// app is an App and its life in a Supervisor. One goroutine, live, moves it on.
type app struct {
	App             // not changed after New
	pod *Supervisor // not changed after New

	mu        sync.Mutex
	status    AppStatus     // guarded by mu
	run       *run          // guarded by mu; nil when nothing can be attached to
	pending   *request      // guarded by mu; of Restart, nil for none
	requested chan struct{} // guarded by mu; closed while a request is pending
	revived   bool          // guarded by mu; liveAgain has begun, and the app is StateExited still
	unready   bool          // guarded by mu; until Ready returns: an end of the main process fails the pod's start

	// untaken has a channel for each passLast that has given up, closed when all is passed on. The app's goroutine only,
	// and that which end starts.
	untaken []<-chan struct{}
}

// refusedMove is the message that reports a refused move.
const refusedMove = "state of app not changed: invalid transition"

// transition moves the app to a state. fill, which may be nil, sets the parts of the
// status that change with it.
//
// A move that the diagram of State forbids is a bug of this package. It is refused: the
// status stays as it was, an error is logged, and the tests of this package fail at that. The
// app's life goes on, because only its goroutine decides what comes next, and never by the
// status: a wrong status must not prevent a pod from ending.
func (a *app) transition(to State, fill func(*AppStatus)) {
	a.mu.Lock()
	from := a.status.State
	if from.mayBecome(to) {
		a.status.State = to
		a.status.PID, a.status.Health = 0, nil
		if to == StateStarting && a.status.Exit != nil {
			a.status.Last = a.status.Exit
		}
		if to == StateStarting || to == StateRunning {
			a.status.Exit = nil
			a.status.Error = ""
		}
		if fill != nil {
			fill(&a.status)
		}
	}
	a.mu.Unlock()
	switch {
	case !from.mayBecome(to):
		a.pod.log.Error(refusedMove, "app", a.Name, "from", from, "to", to)
	case to != StateEnding: // which run.end reports, with how
		a.changed(Change{State: to})
	}
}

func (a *app) snapshot() AppStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// live takes the app through all of its runs. It sends Run exactly one
// appEnded event, and where first is set one appStarted event before.
func (a *app) live(first bool) {
	var wait backoff
	for ; ; first = false {
		begun := time.Now()
		exit, err := a.once(first)
		if failed := first && err != nil; !failed && a.continues(exit, &wait, time.Since(begun)) {
			continue
		}
		a.over(exit)
		return
	}
}

// over ends the app for good, after a run that ended like that.
func (a *app) over(exit Exit) {
	if a.Ended != nil {
		a.Ended()
	}
	a.transition(StateExited, nil)
	a.takeRequest().finish(errMissed)
	a.pod.events <- event{app: a, kind: appEnded, exit: exit}
}

// continues waits until the next run, and returns false if there is none.
func (a *app) continues(exit Exit, wait *backoff, ran time.Duration) bool {
	if a.pod.stop.isAsked() {
		return false
	}
	requested := a.isRequested()
	asked, health := closed(requested), false
	if asked && a.dropHealths() {
		asked, health, requested = false, true, a.isRequested()
	}
	if !asked && !health && !restarts(a.pod.config.Restart, exit) {
		return false
	}
	a.transition(StateRestarting, func(s *AppStatus) { s.Restarts++ })
	if asked {
		a.pod.log.Info("app restarts", "app", a.Name, "why", "asked for")
		return a.awaitTaken()
	}
	pause := wait.next(ran)
	a.pod.log.Info("app restarts", "app", a.Name, "in", pause)
	select {
	case <-time.After(pause):
	case <-requested:
	case <-a.pod.stop.asked:
		return false
	}
	return a.awaitTaken()
}

// awaitTaken waits until the output that passLast has left is taken: each run that is not holds goroutines, descriptors
// and memory. It returns false when the pod stops instead.
func (a *app) awaitTaken() bool {
	if len(a.untaken) > 0 {
		a.pod.log.Warn("restart waits until the app's last output is taken", "app", a.Name)
	}
	for _, passed := range a.untaken {
		select {
		case <-passed:
		case <-a.pod.stop.asked:
			return false
		}
	}
	a.untaken = nil
	return true
}

// once is one run. The error is why the main process could not be started.
func (a *app) once(first bool) (Exit, error) {
	r := newRun(a)
	if first && a.getsReady() {
		a.setUnready(true)
	}
	requested := a.takeRequest()
	err := r.start()
	requested.finish(err)
	mainEnded := func() {}
	if first {
		mainEnded = r.reportStarted(err)
	}
	var exit Exit
	if err == nil {
		exit = r.wait()
		mainEnded()
	} else {
		exit = failedExit(err)
		a.pod.log.Error("app not started", "app", a.Name, "error", err)
	}
	r.end(exit, err)
	return exit, err
}
