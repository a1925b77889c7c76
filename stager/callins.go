package main

import (
	"os"

	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/supervisor"
)

// callIns returns the callers' side of the call-ins, by name. To add one, add a row here, its name
// to names.CallIns, and, if it needs the supervisor, a row in handlers.
func callIns() map[string]callins.CallIn {
	return map[string]callins.CallIn{
		names.Status: callins.Status,
		names.Logs:   callins.LogsFrom(names.LogDir),
		names.Run:    callins.Run,
		names.Attach: callins.Attach,
	}
}

// handlers returns the supervisor's side of the call-ins, by the name of the request.
func handlers(pod *supervisor.Pod, decided *plan.Pod) map[string]callins.Handler {
	return map[string]callins.Handler{
		callins.RequestStatus:    callins.ServeStatus(pod),
		callins.RequestIsolators: callins.ServeIsolators(func(app string) (any, bool) { return decided.Isolators(app) }),
		callins.RequestRun:       callins.ServeRun(pod, decided.CommandEnv),
		callins.RequestAttach:    callins.ServeAttach(pod),
	}
}

func streams() callins.Streams {
	return callins.Streams{
		Socket: names.ControlSocket,
		Stdin:  os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Settings: callins.SettingsDescriptor,
	}
}
