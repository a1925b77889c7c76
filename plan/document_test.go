package plan

import (
	"os"
	"strings"
	"testing"
)

// section returns the part of docs/pods.md below a heading, to the next heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "\n### "+heading+"\n")
	if !found {
		t.Fatalf("docs/pods.md has no heading %q", heading)
	}
	part, _, _ = strings.Cut(part, "\n#")
	return part
}

// docs/pods.md describes each isolator once, and says whether apps or the pod have it.
func TestIsolatorsAreDocumented(t *testing.T) {
	table := section(t, "Isolators")
	for _, row := range isolators() {
		var of []string
		if row.app {
			of = append(of, "app")
		}
		if row.pod {
			of = append(of, "pod")
		}
		want := "\n| `" + row.name + "` | " + strings.Join(of, ", ") + " | "
		if n := strings.Count(table, want); n != 1 {
			t.Errorf("docs/pods.md has %d rows %q", n, want)
		}
	}
	if rows := strings.Count(table, "\n| `"); rows != len(isolators()) {
		t.Errorf("docs/pods.md has %d rows for %d isolators", rows, len(isolators()))
	}
}
