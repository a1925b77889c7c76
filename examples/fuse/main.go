// Command fuse is the reference stager with another union file system: fuse-overlayfs, in a
// process for each root that no app can reach. Its steps, its runtime and its call-ins are the
// reference stager's; the driver is in the package fuseoverlayfs, and its program is in the image.
package main

import (
	"log/slog"
	"os"

	"kurma.io/stager/examples/fuse/fuseoverlayfs"
	"kurma.io/stager/helper"
	"kurma.io/stager/program"
	"kurma.io/stager/program/native"
	"kurma.io/stager/unionfs"
)

func main() { os.Exit(program.Main(program.Options{Begin: native.Begin, Drivers: drivers})) }

// drivers are fuse-overlayfs and, where it does not work, the usual ones.
func drivers(helpers helper.Starter, log *slog.Logger) []unionfs.Driver {
	return append([]unionfs.Driver{fuseoverlayfs.Driver{Program: daemonProgram(), Helpers: helpers, Log: log}}, unionfs.Drivers()...)
}

// daemonProgram is Debian's fuse-overlayfs where fill.sh puts it, with the dynamic linker and the
// libraries that it was built for: nothing else in the image is Debian's.
func daemonProgram() []string {
	const folder = "/fuse-overlayfs"
	return []string{folder + "/ld.so", "--library-path", folder, folder + "/fuse-overlayfs"}
}
