package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/clause"
)

// The shim has the variable by which the program finds that it is the shim.
func TestShimVariable(t *testing.T) {
	if shimEnvironment != names.ShimVariable {
		t.Errorf("shim.h has %q, package names %q", shimEnvironment, names.ShimVariable)
	}
}

// Where a program is looked for, and in what order. The stager gives every app a
// PATH, so that the last case is for other users of this package.
func TestProgramIsSoughtInEveryFolderOfPath(t *testing.T) {
	clause.Covers(t, "C-EXE-01")
	for _, test := range []struct {
		name, program string
		env, want     []string
	}{
		{"slash", "bin/x", []string{"PATH=/a"}, []string{"bin/x"}},
		{"PATH", "x", []string{"XPATH=/z", "PATH=/a:/b"}, []string{"/a/x", "/b/x"}},
		{"empty parts of PATH are here", "x", []string{"PATH=:/b:"}, []string{"./x", "/b/x", "./x"}},
		{"no PATH: here, then confstr(_CS_PATH)", "x", []string{"XPATH=/z"}, []string{"./x", "/bin/x", "/usr/bin/x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, candidates(test.program, test.env)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
