package callins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
)

// callStatus is the call-in status: it writes one JSON object to Stdout, with the apps
// in the pod's order (stager specification, status), or, with the arguments
// --isolators APP, whether each of the app's isolators is enforced, changed or ignored.
// An error is an *ExitError with Code 1.
func callStatus(ctx context.Context, s Streams, args []string) error {
	request := requestStatus
	switch {
	case len(args) == 0:
	case len(args) == 2 && args[0] == "--isolators":
		request, args = requestIsolators, args[1:]
	default:
		return exit("status", exitDocument, fmt.Errorf("unknown arguments %q, want none or --isolators APP", args))
	}
	return printDocument(ctx, s, "status", request, args)
}

// serveIsolators returns the handler of requestIsolators. isolators returns the
// fate of each of app's isolators, to be written as JSON; false if there is no such
// app. It may run concurrently with itself.
func serveIsolators[Fates any](isolators func(app string) (Fates, bool)) Handler {
	return ServeDocument(func(_ context.Context, call *Call) (any, error) {
		args := call.Args()
		if len(args) != 1 {
			return nil, fmt.Errorf("want one argument, the app's name, have %d", len(args))
		}
		fates, ok := isolators(args[0])
		if !ok {
			return nil, fmt.Errorf("app %q: %w", args[0], supervisor.ErrNoApp)
		}
		return fates, nil
	})
}

// serveStatus returns the handler of requestStatus for the pod.
func serveStatus(pod *supervisor.Supervisor) Handler {
	return ServeDocument(func(ctx context.Context, call *Call) (any, error) {
		var apps orderedObject
		for _, app := range pod.Status() {
			state, err := stateOf(ctx, call, app)
			if errors.Is(err, unix.ESRCH) {
				state.PID, state.Ending, err = 0, true, nil // it has ended since
			}
			if err != nil {
				return nil, err
			}
			apps = append(apps, member{app.Name, state})
		}
		return apps, nil
	})
}

// LastStatus returns what status prints of a pod when all its apps have ended.
func LastStatus(pod *supervisor.Supervisor) ([]byte, error) {
	var apps orderedObject
	for _, app := range pod.Status() {
		app.PID = 0
		state, err := stateOf(context.Background(), nil, app)
		if err != nil {
			return nil, err
		}
		apps = append(apps, member{app.Name, state})
	}
	return json.Marshal(apps)
}

// appState is one app in the output of status.
type appState struct {
	PID        int    `json:"pid,omitempty"`
	Exited     bool   `json:"exited"`
	Ending     bool   `json:"ending,omitempty"` // its process has ended, its exit or last output is not known yet
	ExitCode   *int   `json:"exitCode,omitempty"`
	ExitReason string `json:"exitReason,omitempty"`
	Restarting bool   `json:"restarting,omitempty"` // it has ended, and will be started again
	Restarts   int    `json:"restarts,omitempty"`   // runs after the first
	LastCode   *int   `json:"lastExitCode,omitempty"`
	LastReason string `json:"lastExitReason,omitempty"` // of the run before the latest

	Health   supervisor.HealthState `json:"health,omitempty"`         // of an app that runs and has a check
	Failures int                    `json:"healthFailures,omitempty"` // of checks in a row
	Failure  string                 `json:"healthReason,omitempty"`   // why the latest check has failed
}

// stateOf returns an app's state as the caller sees it. The PID is 0, and left out, if
// the caller's PID namespace does not have the process. The error wraps ESRCH if
// the process has gone.
func stateOf(ctx context.Context, call *Call, app supervisor.AppStatus) (state appState, err error) {
	state.Restarts, state.Restarting = app.Restarts, app.State == supervisor.StateRestarting
	if app.Last != nil {
		state.LastCode, state.LastReason = &app.Last.Code, app.Last.Reason
	}
	if app.Health != nil {
		state.Health, state.Failures, state.Failure = app.Health.State, app.Health.Failures, app.Health.Reason
	}
	switch {
	case app.PID > 0:
		state.PID, err = call.Process(ctx, app.PID)
	case app.Exit != nil:
		state.Exited, state.ExitCode, state.ExitReason = true, &app.Exit.Code, app.Exit.Reason
	default:
		state.Ending = app.State == supervisor.StateEnding
	}
	return state, err
}
