// Package native is how the reference stager begins: with the init in C of package pid1, and with the runtime of
// package container. A program that imports it has pid1's constructor, which runs before main, and needs cgo.
package native

import (
	"log/slog"
	"os"

	"kurma.io/stager/boot"
	"kurma.io/stager/container"
	"kurma.io/stager/helper"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
	"kurma.io/stager/program"
	"kurma.io/stager/spec"
)

// Begin is a program.Options.Begin.
func Begin() (*program.Supervisor, error) {
	container.Init()
	init, err := pid1.Take()
	if init == nil || err != nil {
		return nil, err
	}
	return &program.Supervisor{
		Init: init, Inherited: boot.TakeDescriptors(os.Environ()),
		Runtime: func(_ helper.Starter, log *slog.Logger) spec.Runtime {
			return container.NewRuntime(names.AppsCgroup, init, log)
		},
	}, nil
}
