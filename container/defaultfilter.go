package container

import (
	"embed"
	"runtime"
	"slices"
)

// Compiling the default profile takes libseccomp some ten milliseconds for each
// ABI set, more than the whole rest of an app's start, so the program for
// the default capabilities comes with the binary. TestDefaultFilterIsCurrent compares
// it with a fresh one.
//
//go:generate go test -tags seccomp,netgo,osusergo -run ^TestDefaultFilterIsCurrent$ -update .
//go:embed filters
var filters embed.FS

// DefaultCapabilities are those that an app has when its isolators say
// nothing (appc, ace.md, os/linux/capabilities-remove-set), sorted.
func DefaultCapabilities() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
		"CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
		"CAP_SETUID", "CAP_SYS_CHROOT",
	}
}

// DefaultFilter is the filter of the profile that Docker and its kin use, for a
// process with the given bounding set and for every ABI of the machine. It takes
// no time for DefaultCapabilities, in any order, on an architecture that has
// a file in filters/, and some ten milliseconds otherwise.
func DefaultFilter(capabilities []string) (*Filter, error) {
	if slices.Equal(slices.Sorted(slices.Values(capabilities)), DefaultCapabilities()) {
		if program, err := filters.ReadFile(filterFile()); err == nil {
			return loadFilter(program)
		}
	}
	return compileDefault(capabilities)
}

func filterFile() string { return "filters/default_" + runtime.GOARCH + ".bpf" }
