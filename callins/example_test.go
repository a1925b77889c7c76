package callins_test

import (
	"context"
	"fmt"

	"kurma.io/stager/callins"
	"kurma.io/stager/supervisor"
)

// A call-in of a fork, `pid APP`, in one file of any package: it prints the number that an
// app's main process has in the caller's PID namespace.
func Example() {
	// What the program's main has: the pod, and what its plan says of isolators and variables.
	var (
		pod       *supervisor.Supervisor
		isolators func(app string) (any, bool)
		env       func(app string) []string
	)

	// The caller's side: a row in the table of call-ins.
	callIns := callins.CallIns()
	callIns["pid"] = callins.PrintDocument("pid")

	// The supervisor's side: a row in the table of the server's handlers.
	handlers := callins.Handlers(pod, isolators, env)
	handlers["pid"] = callins.ServeDocument(pidOf(pod))
	server := callins.Server{Handlers: handlers}

	_, _ = callIns, server
}

func pidOf(pod *supervisor.Supervisor) func(context.Context, *callins.Call) (any, error) {
	return func(ctx context.Context, call *callins.Call) (any, error) {
		if len(call.Args()) != 1 {
			return nil, fmt.Errorf("want one argument, the app's name, have %d", len(call.Args()))
		}
		name := call.Args()[0]
		for _, app := range pod.Status() {
			if app.Name == name && app.State == supervisor.StateRunning {
				return call.Process(ctx, app.PID)
			}
		}
		return nil, fmt.Errorf("app %q is not running", name)
	}
}
