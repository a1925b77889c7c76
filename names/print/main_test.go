package main

import (
	"bytes"
	"os"
	"testing"

	"kurma.io/stager/names"
)

func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(&out, args); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTheProgramsNameIsPrinted(t *testing.T) {
	if got := printed(t); got != names.Program+"\n" {
		t.Errorf("%q", got)
	}
}

// A fork that renames the stager writes the header again.
func TestHeaderIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../internal/c/names.h")
	if err != nil || string(text) != printed(t, "--c") {
		t.Errorf("internal/c/names.h is not that of names.go, %v: run go generate ./names/...", err)
	}
}

func TestUnknownArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"NOBODY"}, {""}, {"--c", "--c"}} {
		var out bytes.Buffer
		if err := run(&out, args); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}
