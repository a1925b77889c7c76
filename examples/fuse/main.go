// Command fuse is the reference stager with another union file system: fuse-overlayfs, in a
// process for each root that no app can reach. Its phases, its runtime and its call-ins are those of
// the packages; the driver is in the package fuseoverlayfs, and its program is in the image.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/examples/fuse/fuseoverlayfs"
	"kurma.io/stager/helper"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
	"kurma.io/stager/unionfs"
)

func main() {
	container.Init() // this program is also a container's first process
	code, err := dispatch(context.Background())
	os.Exit(max(code, callins.ExitCode(err, os.Stderr)))
}

// dispatch finds the program's part: a call-in by its name, or the supervisor, for which package pid1 has an init if the
// daemon has started the program as the stager.
func dispatch(ctx context.Context) (int, error) {
	if callIn, ok := callins.CallIns()[filepath.Base(os.Args[0])]; ok {
		return 0, callIn(ctx, callins.ProcessStreams(), os.Args[1:])
	}
	init, err := pid1.Take()
	if err != nil {
		return 1, fmt.Errorf("%s: %w", names.Program, err)
	}
	if init == nil {
		return 1, fmt.Errorf("%s: called as %q, which is neither the stager nor a call-in", names.Program, os.Args)
	}
	inherited := boot.TakeDescriptors(os.Environ())
	code, err := boot.Supervise(ctx, func(log *slog.Logger) boot.Parts {
		return boot.Parts{
			Runtime: container.NewRuntime(names.AppsCgroup, init, log), Drivers: drivers(helper.Children{Log: log}, log),
			Init: init, Inherited: inherited,
		}
	}, boot.Steps())
	if err != nil {
		return max(code, 1), fmt.Errorf("%s: %w", names.Program, err)
	}
	return code, nil
}

// drivers are fuse-overlayfs and, where it does not work, the usual ones.
func drivers(helpers helper.Starter, log *slog.Logger) []unionfs.Driver {
	return append([]unionfs.Driver{fuseoverlayfs.Driver{Program: program(), Helpers: helpers, Log: log}}, unionfs.Drivers()...)
}

// program is Debian's fuse-overlayfs where fill.sh puts it, with the dynamic linker and the
// libraries that it was built for: nothing else in the image is Debian's.
func program() []string {
	const folder = "/fuse-overlayfs"
	return []string{folder + "/ld.so", "--library-path", folder, folder + "/fuse-overlayfs"}
}
