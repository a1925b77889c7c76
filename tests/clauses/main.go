// Command clauses lists the tests that cover each clause of the App Container specification. Run in
// the repository's root, it prints tests/CLAUSES.md, made from tests/clauses/clauses.txt and the
// declarations of the tests.
//
// A test or subtest declares its clauses: clause.Covers(t, "C-CAP-02", "C-CAP-03").
package main

import (
	"fmt"
	"os"
)

func main() {
	text, err := document(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "clauses:", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.WriteString(text); err != nil {
		os.Exit(1)
	}
}
