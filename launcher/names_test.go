package main

import (
	"strings"
	"testing"
)

func TestPodName(t *testing.T) {
	tests := []struct{ file, want string }{
		{"nats", "nats"},
		{"My_pod-1.2", "My_pod-1.2"},
		{"two lines\n00000000  forged  running", "two-lines-00000000--forged--running"},
		{"\x1b[2Jé\xff", "2J--"},
		{"..", "pod"},
		{strings.Repeat("x", 300), strings.Repeat("x", 64)},
	}
	for _, tt := range tests {
		if got := podName(tt.file); got != tt.want || !isPodName(got) {
			t.Errorf("podName(%q) = %q, want %q", tt.file, got, tt.want)
		}
	}
}

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"1.0 β":                  "1.0 β",
		"1\tforged\n":            `"1\tforged\n"`,
		"\x1b[2J":                `"\x1b[2J"`,
		"a\xff":                  `"a\xff"`,
		strings.Repeat("x", 300): strings.Repeat("x", 200) + "…",
	} {
		if got := shown(text); got != want {
			t.Errorf("shown(%q) = %q, want %q", text, got, want)
		}
	}
}
