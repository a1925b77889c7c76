package main

import (
	"errors"
	"strings"
	"testing"
)

func TestPrintableQuotesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"1.0 β":                  "1.0 β",
		"1\tforged\n":            `"1\tforged\n"`,
		"\x1b[2J":                `"\x1b[2J"`,
		"a\xff":                  `"a\xff"`,
		strings.Repeat("x", 300): strings.Repeat("x", 200) + "…",
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %q, want %q", text, got, want)
		}
	}
}

// An error is one line, whose characters a terminal shows and does not obey.
func TestOneLineEscapesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		`import "a b": ü\x`:                  `import "a b": ü\x`,
		"no\nway":                            "no; way",
		"DENIED: \x1b[31m\r\t\u202e\x7f\xff": `DENIED: \x1b[31m\r\t\u202e\x7f\xff`,
		"\ufffd":                             "\ufffd",
	} {
		if got := oneLine(errors.New(text)); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", text, got, want)
		}
	}
}
