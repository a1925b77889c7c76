package container

import (
	"embed"
	"runtime"
	"slices"

	"kurma.io/stager/spec"
)

// libseccomp takes about ten milliseconds to compile the default profile for each ABI set, more
// than the rest of an app's start, so the binary embeds the program for the default
// capabilities. TestDefaultFilterIsCurrent compares it with a newly compiled one.
//
//go:generate go test -tags seccomp,netgo,osusergo -run "^Test(DefaultFilter|SyscallList)IsCurrent$" -update .
//go:embed filters
var filters embed.FS

// defaultFilter returns the filter of the profile that Docker and containerd use, for a process
// with that bounding set and for every ABI of the machine. It is embedded for
// spec.DefaultCapabilities, in any order, on an architecture that has a file in filters/;
// otherwise compiling it takes about ten milliseconds.
func defaultFilter(capabilities []string) (*filter, error) {
	if slices.Equal(slices.Sorted(slices.Values(capabilities)), spec.DefaultCapabilities()) {
		if program, err := filters.ReadFile(filterFile()); err == nil {
			return loadFilter(program)
		}
	}
	return compileDefault(capabilities)
}

func filterFile() string { return "filters/default_" + runtime.GOARCH + ".bpf" }
