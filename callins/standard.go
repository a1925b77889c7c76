package callins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
)

// CallIns returns the callers' side of the standard call-ins, status, logs, run, attach and restart, by
// the names that package names gives them. The map is the caller's, which may add rows.
func CallIns() map[string]CallIn {
	return map[string]CallIn{
		names.Status: callStatus,
		names.Logs:   LogsFrom(names.LogDir),
		names.Run:    callRun,
		names.Attach: callAttach,

		names.Restart: callRestart,
	}
}

// Handlers returns the supervisor's side of the standard call-ins for the pod, by the name of the request. isolators
// returns the fate of each of an app's isolators, to be written as JSON; false if there is no such app. env returns
// the variables, NAME=value, that a command in an app has unless its settings list the name. Both may run
// concurrently with themselves; a plan.Pod has both as methods. The map is the caller's, which may add rows.
func Handlers[Fates any](
	pod *supervisor.Supervisor, isolators func(app string) (Fates, bool), env func(app string) []string,
) map[string]Handler {
	return map[string]Handler{
		requestStatus:    serveStatus(pod),
		requestIsolators: serveIsolators(isolators),
		requestRun:       serveRun(pod, env),
		requestAttach:    func(ctx context.Context, call *Call) error { return serveAttach(ctx, pod, call) },
		requestRestart:   serveRestart(pod),
	}
}

// ProcessStreams returns this process's descriptors, as a daemon passes them, and the stager's
// socket.
func ProcessStreams() Streams {
	return Streams{
		Socket: names.ControlSocket,
		Stdin:  os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Settings: settingsDescriptor,
	}
}

// ExitCode returns the exit code of a program for the error of its main, and writes the text of the error to stderr,
// in one line that a terminal shows and does not obey: nothing and 0 for nil, the Code and the Err of an *ExitError,
// 1 and the text of any other.
func ExitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	code := 1
	if exit, ok := errors.AsType[*ExitError](err); ok {
		code, err = exit.Code, exit.Err
	}
	if err != nil {
		fmt.Fprintln(stderr, plaintext.Line(err.Error()))
	}
	return code
}
