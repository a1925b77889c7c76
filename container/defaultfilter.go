package container

import (
	"embed"
	"runtime"
	"slices"

	"kurma.io/stager/spec"
)

// Compiling the default profile takes libseccomp some ten milliseconds for each
// ABI set, more than the whole rest of an app's start, so the program for
// the default capabilities comes with the binary. TestDefaultFilterIsCurrent compares
// it with a fresh one.
//
//go:generate go test -tags seccomp,netgo,osusergo -run "^Test(DefaultFilter|SyscallList)IsCurrent$" -update .
//go:embed filters
var filters embed.FS

// defaultFilter is the filter of the profile that Docker and its kin use, for a
// process with the given bounding set and for every ABI of the machine. It takes
// no time for spec.DefaultCapabilities, in any order, on an architecture that has
// a file in filters/, and some ten milliseconds otherwise.
func defaultFilter(capabilities []string) (*filter, error) {
	if slices.Equal(slices.Sorted(slices.Values(capabilities)), spec.DefaultCapabilities()) {
		if program, err := filters.ReadFile(filterFile()); err == nil {
			return loadFilter(program)
		}
	}
	return compileDefault(capabilities)
}

func filterFile() string { return "filters/default_" + runtime.GOARCH + ".bpf" }
