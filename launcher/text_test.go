package main

import (
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
