// Command clauses says which tests cover which clause of the App Container
// specification. Run in the repository's root it prints tests/CLAUSES.md, made of
// tests/clauses/clauses.txt and the names of the tests.
//
// A test names its clauses in its own name, TestClause_C_CAP_02_…, with more IDs where it has, or in those of
// its subtests: texts in it that begin with one or more IDs, "C-CAP-02 C-CAP-03 …".
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
