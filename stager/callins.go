package main

import (
	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
)

// callIns returns the callers' side of the call-ins, by name: the standard ones. To add one, add a
// row to that map, its name to names.CallIns, and, if it needs the supervisor, a row in handlers. A fork that
// changes status or run passes them callins.ProcessStreams in place of plain.Streams, in main.go: package plain
// makes most of their calls before main.
func callIns() map[string]callins.CallIn { return callins.CallIns() }

// handlers returns the supervisor's side of the call-ins, by the name of the request: the standard ones.
func handlers(pod *boot.Pod) map[string]callins.Handler {
	return callins.Handlers(pod.Supervisor, pod.Isolators, pod.CommandEnv)
}
