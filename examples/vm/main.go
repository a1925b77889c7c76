// Command vm is a stager whose apps run in a virtual machine. Outside, in the
// container that the daemon has made, it mounts the roots, starts qemu and relays; in the
// guest, the same program is the first process and runs the pod with the packages
// of the reference stager. README.md draws it.
//
// outside.go is the way of a pod outside, guest.go, agent.go and pod.go are the way in the guest.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/names"
)

func main() {
	container.Init()
	os.Exit(callins.ExitCode(dispatch(os.Args), os.Stderr))
}

// dispatch finds the program's part by the base name of argv[0]. The kernel calls
// the guest's first process /init.
func dispatch(args []string) error {
	if len(args) == 0 {
		return errors.New(names.Program + ": no argv[0]")
	}
	name, args := filepath.Base(args[0]), args[1:]
	switch {
	case name == names.Program && len(args) == 0:
		return becomeOutside()
	case name == outsideRole:
		return outside(context.Background())
	case name == "init" && os.Getpid() == 1:
		beGuest()
		return nil
	case name == podRole && len(args) == 1:
		return supervise(context.Background(), args[0])
	case name == callRole && len(args) > 0:
		if callIn, ok := callins.CallIns()[args[0]]; ok {
			return callIn(context.Background(), callins.ProcessStreams(), args[1:])
		}
	case slices.Contains(names.CallIns(), name):
		return callIn(name, args)
	}
	return fmt.Errorf("%s: called as %q, which is neither the stager nor a call-in", names.Program, name)
}
