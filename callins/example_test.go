package callins_test

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kurma.io/stager/callins"
	"kurma.io/stager/supervisor"
)

// A call-in of a fork, `processes APP`, in one file of any package: it prints the
// numbers that an app's processes have in the caller's PID namespace.
func Example() {
	// What the program's main has: the pod, and what its plan says of isolators and variables.
	var (
		pod       *supervisor.Pod
		isolators func(app string) (any, bool)
		env       func(app string) []string
	)

	// The caller's side: a row in the table of call-ins.
	callIns := callins.CallIns()
	callIns["processes"] = callins.PrintDocument("processes")

	// The supervisor's side: a row in the table of the server's handlers.
	handlers := callins.Handlers(pod, isolators, env)
	handlers["processes"] = callins.ServeDocument(processesOf(pod))
	server := callins.Server{Handlers: handlers}

	_, _ = callIns, server
}

func processesOf(pod *supervisor.Pod) func(context.Context, *callins.Call) (any, error) {
	return func(ctx context.Context, call *callins.Call) (any, error) {
		if len(call.Args()) != 1 {
			return nil, fmt.Errorf("want one argument, the app's name, have %d", len(call.Args()))
		}
		pids, err := pod.Processes(call.Args()[0])
		if err != nil {
			return nil, err
		}
		numbers := make([]int, 0, len(pids))
		for _, pid := range pids {
			number, err := call.Process(ctx, pid)
			switch {
			case errors.Is(err, unix.ESRCH): // it has ended since
			case err != nil:
				return nil, err
			default:
				numbers = append(numbers, number)
			}
		}
		return numbers, nil
	}
}
