// Command vm is a stager whose apps run in a virtual machine. Outside, in the
// container that the daemon has made, it mounts the roots, starts qemu and relays; in the
// guest, the same program is the first process and runs the pod with the packages
// of the reference stager. README.md draws it.
//
// outside.go is the way of a pod outside, guest.go, agent.go and pod.go are the way in the guest.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/names"
	"kurma.io/stager/program"
)

func main() {
	relays := map[string]callins.CallIn{}
	for _, name := range names.CallIns() {
		relays[name] = relay(name)
	}
	os.Exit(program.Main(program.Options{
		Begin: begin, CallIns: relays,
		Roles: map[string]func(context.Context, []string) error{
			outsideRole: func(ctx context.Context, _ []string) error { return outside(ctx) },
			guestRole:   beGuest,
			podRole:     supervise,
			callRole:    callHere,
		},
	}))
}

// begin is a program.Options.Begin. The program is no pod's supervisor on this side: it has the role outside.
func begin() (*program.Supervisor, error) {
	container.Init()
	if len(os.Args) == 1 && filepath.Base(os.Args[0]) == names.Program {
		return nil, becomeOutside()
	}
	return nil, nil //nolint:nilnil // no supervisor is an answer here
}

// callHere makes a call-in in the guest, whose supervisor has the standard ones.
func callHere(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if callIn, ok := callins.CallIns()[args[0]]; ok {
			return callIn(ctx, callins.ProcessStreams(), args[1:])
		}
	}
	return fmt.Errorf("%s: unknown call-in %q", names.Program, args)
}
