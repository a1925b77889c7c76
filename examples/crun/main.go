// Command crun is a stager that starts its apps with crun, an OCI runtime in C. All but the
// runtime is the reference stager's: package program is its main function, package goinit
// starts its supervisor and is the pod's PID 1. The program links neither cgo nor libcontainer.
package main

import (
	"log/slog"
	"os"

	"kurma.io/stager/names"
	"kurma.io/stager/pid1/goinit"
	"kurma.io/stager/program"
	"kurma.io/stager/spec"
)

func main() {
	enterCgroup() // this program is also what executes crun
	newRuntime := func(init *goinit.Init, _ *slog.Logger) spec.Runtime {
		return &runtime{cgroup: names.AppsCgroup, init: init, family: new(family)}
	}
	os.Exit(program.Main(program.Options{Begin: goinit.Begin(newRuntime)}))
}
