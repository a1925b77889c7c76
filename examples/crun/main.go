// Command crun is a stager that starts its apps with crun, an OCI runtime in C. All but the
// runtime is the reference stager's: package boot takes the pod through its life, package pid1
// starts its supervisor. The program links neither cgo nor libcontainer.
package main

import (
	"log/slog"
	"os"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
	"kurma.io/stager/waiter/pid1"
)

func main() {
	enterCgroup() // this program is also what executes crun
	newRuntime := func(*slog.Logger) spec.Runtime { return &runtime{cgroup: names.AppsCgroup} }
	os.Exit(pid1.Main(newRuntime, unionfs.Drivers(), boot.Steps()))
}
