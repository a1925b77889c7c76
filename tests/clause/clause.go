// Package clause lets a test declare which clauses of the App Container specification
// it shows. Command clauses collects the declarations in tests/CLAUSES.md.
package clause

import (
	"regexp"
	"strings"
	"testing"
)

// Covers declares that the test or subtest t shows the clauses with the IDs, such as "C-USR-01" or
// "C-USR-01 C-USR-02"; "" declares none. Write the IDs as string literals: in the call, or in a
// table of the same file. They become attributes of the test, see testing.T.Attr.
func Covers(t testing.TB, ids ...string) {
	t.Helper()
	for _, id := range IDs(strings.Join(ids, " ")) {
		t.Attr("clause", id)
	}
	for _, text := range ids {
		if text != "" && IDs(text) == nil {
			t.Fatalf("clause.Covers: %q is not a list of clauses", text)
		}
	}
}

// IDs returns the IDs in text, or nil if text has anything else.
func IDs(text string) []string {
	if !regexp.MustCompile(`^(C-[A-Z]+-[0-9]{2}( |$))+$`).MatchString(text) {
		return nil
	}
	return strings.Fields(text)
}
