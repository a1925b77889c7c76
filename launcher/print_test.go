package main

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// controls returns the characters of an output that a terminal obeys or cannot show, but newlines and tabs.
func controls(output string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r != utf8.RuneError && unicode.IsPrint(r) {
			return -1
		}
		return r
	}, output)
}

// What an image has chosen reaches no terminal as it is: not in tables, JSON, warnings or errors.
func TestNoControlCharacterOfAnImageIsPrinted(t *testing.T) {
	h := newHost(t)
	const hostile = "1\x7f\u009b31m\u202e" + `\u001b[31m\r\n\u0007`
	image := h.image("hostile.aci", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/hostile",
		"labels":[{"name":"version","value":"`+hostile+`"}],"annotations":[{"name":"authors","value":"`+hostile+`"}],
		"app":{"exec":["/x","`+hostile+`"],"user":"`+hostile+`","group":"0","environment":[{"name":"X","value":"`+hostile+`"}],
		"isolators":[{"name":"example.com/unknown","value":"`+hostile+`"}]}}`)
	lost := h.image("lost.aci", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/lost","app":{"exec":["/x"],"user":"0","group":"0"},
		"dependencies":[{"imageName":"example.com/base","labels":[{"name":"version","value":"`+hostile+`"}]}]}`)
	h.sign(image, newKey(t))
	h.run("image", "import", image, lost)
	for _, tt := range []struct {
		command string
		code    int
		shown   string // in what is printed
	}{
		{"image list --no-trunc", 0, `\u009b31m`},
		{"image list --json", 0, `\u009b31m`},
		{"inspect example.com/hostile", 0, `\u009b31m`},
		{"inspect --json example.com/hostile", 0, `\u009b31m`},
		{"validate example.com/hostile", 0, `image "example.com/hostile:1\x7f\u009b31m\u202e\x1b[31m\r\n\a" (sha512-`},
		{"run --detach --name p example.com/hostile", 0, `image "example.com/hostile:1\x7f\u009b31m\u202e\x1b[31m\r\n\a" (sha512-`},
		{"run --detach example.com/lost", 1, `"example.com/base,version=1\x7f\u009b31m`},
		{"inspect p", 0, `\u009b31m`},
		{"ps", 0, "p"},
		{"status p", 0, "hostile"},
		{"events --stream=false", 0, "started"},
		{"stop p", 0, ""},
		{"rm p", 0, ""},
	} {
		r := h.try(strings.Fields(tt.command)...)
		printed := r.stdout + r.stderr
		if r.code != tt.code || !strings.Contains(printed, tt.shown) || controls(printed) != "" {
			t.Errorf("%s: exit status %d, control characters %q in\n%q\nwant exit status %d and %q", tt.command, r.code, controls(printed), printed, tt.code, tt.shown)
		}
	}
}
