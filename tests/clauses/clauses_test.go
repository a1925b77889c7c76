package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentIsCurrent(t *testing.T) {
	want, err := document("../..")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../CLAUSES.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("make clauses has not been run:\n%s", diff)
	}
}

// A question that is taken out or left out is noticed: the document is about all of them.
func TestChoicesAreWhole(t *testing.T) {
	const fields = " | q | text | rkt | kurma | here | C-1"
	for name, test := range map[string]struct{ text, want string }{
		"whole":          {"# comment\n\nD-01" + fields + "\nD-02" + fields + "\n", ""},
		"a gap":          {"D-01" + fields + "\nD-03" + fields + "\n", "question D-03, want D-02"},
		"twice":          {"D-01" + fields + "\nD-01" + fields + "\n", "question D-01, want D-02"},
		"a field short":  {"D-01 | q | text\n", "3 fields, want 7"},
		"a wrong clause": {"D-01" + fields + "2\n", "names clause C-12"},
	} {
		path := filepath.Join(t.TempDir(), "choices")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := choicesTable(path, []entry{{id: "C-1"}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}
