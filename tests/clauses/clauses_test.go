package main

import (
	"os"
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
