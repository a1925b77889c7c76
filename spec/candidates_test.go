package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/tests/clause"
)

// Where a program is looked for, and in what order. The stager sets PATH for
// every app, so that the last case is for other planners.
func TestProgramIsSoughtInEveryFolderOfPath(t *testing.T) {
	clause.Covers(t, "C-EXE-01")
	long := strings.Repeat(":", 128<<10+1)
	for _, test := range []struct {
		name, program string
		env, want     []string
	}{
		{"slash", "bin/x", []string{"PATH=/a"}, []string{"bin/x"}},
		{"PATH", "x", []string{"XPATH=/z", "PATH=/a:/b"}, []string{"/a/x", "/b/x"}},
		{"empty parts of PATH are here", "x", []string{"PATH=:/b:"}, []string{"./x", "/b/x", "./x"}},
		{"no PATH: here, then confstr(_CS_PATH)", "x", []string{"XPATH=/z"}, []string{"./x", "/bin/x", "/usr/bin/x"}},
		{"a name that no file has", long[:256], []string{"PATH=/a:/b"}, []string{long[:256]}},
		{"the longest name", long[:255], []string{"PATH=/a"}, []string{"/a/" + long[:255]}},
		{"a PATH that no program gets", "x", []string{"PATH=" + long}, []string{"x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Candidates(test.program, test.env)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
