package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// The detach keys are found wherever a read cuts them, and are not passed on; alone they are.
func TestDetachKeysAreFound(t *testing.T) {
	for typed, want := range map[string]struct {
		passed string
		left   bool
	}{
		"ls\r":           {"ls\r", false},
		"ls\x10\x11more": {"ls", true},
		"\x10x\x11":      {"\x10x\x11", false},
		"\x10\x10\x11":   {"\x10", true},
		"\x11\x10":       {"\x11", false}, // the first key waits for the next
		"":               {"", false},
	} {
		for name, from := range map[string]io.Reader{"at once": strings.NewReader(typed), "byte by byte": iotest.OneByteReader(strings.NewReader(typed))} {
			var to bytes.Buffer
			if left := passKeys(from, &to); left != want.left || to.String() != want.passed {
				t.Errorf("%q %s: passed %q, left %v, want %q, %v", typed, name, to.String(), left, want.passed, want.left)
			}
		}
	}
}
