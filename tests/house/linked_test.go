package house

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The modules that are linked into each program are those of testdata/linked.txt: a dependency comes into a program by
// a change of this list, and not unseen by an import elsewhere in the one module.
func TestProgramsLinkTheModulesOfTheList(t *testing.T) {
	text, err := os.ReadFile("testdata/linked.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	program := ""
	for line := range strings.Lines(string(text)) {
		switch name, isModule := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "\t"); {
		case isModule:
			listed[program] = append(listed[program], name)
		default:
			program = name
		}
	}
	for program, want := range listed {
		if left(t, program) {
			continue
		}
		var linked []string
		for _, p := range list(t, "-deps", "./"+program) {
			if p.Module != nil && p.Module.Path != module(t) {
				linked = append(linked, p.Module.Path)
			}
		}
		if diff := cmp.Diff(want, unique(linked)); diff != "" {
			t.Errorf("%s links other modules (+) than testdata/linked.txt has (-):\n%s", program, diff)
		}
	}
	if len(listed) < 4 {
		t.Errorf("testdata/linked.txt has %d programs", len(listed))
	}
}
