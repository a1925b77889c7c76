package main

import (
	"strings"
	"testing"
)

// The variables of files come before those of --env. An error names the line, and no value.
func TestEnvFiles(t *testing.T) {
	t.Setenv("FROM_CALLER", "x=y")
	h := newPod(t)
	file := h.text("env", "# comment\n\nA=from file\nFROM_CALLER\nQ=\"a=b\" # x\n")
	want := `"environment":[{"name":"FROM_CALLER","value":"x=y"},{"name":"Q","value":"\"a=b\" # x"},{"name":"A","value":"from option"}]`
	if out := h.run("exec", "--env", "A=from option", "--env-file", file, "p", "--", "settings"); !strings.Contains(out, want) {
		t.Errorf("%s, want %s", out, want)
	}
	h.run("run", "--detach", "--name", "q", "--env-file", file, "example.com/one")
	if out := h.run("inspect", "q"); !strings.Contains(out, `"value": "from file"`) {
		t.Errorf("inspect of run --env-file: %s", out)
	}
	h.run("rm", "--force", "q")
	for text, want := range map[string]string{"A=1\nsecret": "line 2: want NAME=VALUE, or the NAME of a variable", "1=secret": `line 1: name "1": want a name of letters`, "\ufeff\ufeffA=secret": `line 1: name "\ufeffA": want`, "=secret": "line 1: want NAME=VALUE", "A=\xff": "line 1: not UTF-8"} {
		bad := h.text("bad", text)
		for _, args := range [][]string{{"run", "--env-file", bad, "example.com/one"}, {"exec", "--env-file", bad, "p", "--", "settings"}} {
			r := h.try(args...)
			if r.code != 2 || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "secret") {
				t.Errorf("%s of %q: %+v, want %q", args[0], text, r, want)
			}
		}
	}
}

// A variable with a bad name does not show the others' values.
func TestABadVariableDoesNotShowOthers(t *testing.T) {
	h := newHost(t)
	r := h.try("run", "--env", "OTHER=secret", "--env", "BAD NAME=x", "example.com/one")
	if r.code != 2 || !strings.Contains(r.stderr, `want a name of letters, digits, "_", "." and "-"`) || strings.Contains(r.stderr, "secret") {
		t.Errorf("%+v", r)
	}
}
