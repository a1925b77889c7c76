package main

import (
	"os"

	"kurma.io/stager/callins"
	"kurma.io/stager/names"
)

// callIns is the callers' side of the call-ins, by the names that names.CallIns
// lists. To add one, add a row here, its name there, and, if it needs the supervisor, a row below.
func callIns() map[string]callins.CallIn {
	return map[string]callins.CallIn{
		names.Status: callins.Status,
		names.Logs:   callins.LogsFrom(names.LogDir),
		names.Run:    callins.Run,
		names.Attach: callins.Attach,
	}
}

// handlers is the supervisor's side of the call-ins, by the names of their requests.
func (b *boot) handlers() map[string]callins.Handler {
	return map[string]callins.Handler{
		callins.RequestStatus:    callins.ServeStatus(b.pod),
		callins.RequestIsolators: callins.ServeIsolators(b.isolators),
		callins.RequestRun:       callins.ServeRun(b.pod, b.plan.CommandEnv),
		callins.RequestAttach:    callins.ServeAttach(b.pod),
	}
}

func streams() callins.Streams {
	return callins.Streams{
		Socket: names.ControlSocket,
		Stdin:  os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Settings: callins.SettingsDescriptor,
	}
}
