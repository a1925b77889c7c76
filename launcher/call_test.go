package main

import (
	"strings"
	"testing"
)

// A call-in of which only the stager knows gets its arguments and stdio as they are.
func TestCallExecutesAnUnknownCallIn(t *testing.T) {
	h := newPod(t)
	for _, name := range []string{"p", h.ps()[0].UUID[:8]} {
		cmd := h.command("call", name, "extra", "--json", "-- x", "")
		cmd.Stdin = strings.NewReader("from stdin")
		r := h.finish(cmd)
		if want := "[--json -- x ] [HOME=/root] true <nil>\nfrom stdin"; r.code != 42 || r.stdout != want || r.stderr != "to stderr\n" {
			t.Errorf("%+v, want exit status 42 and %q", r, want)
		}
	}
	if out := h.run("call", "p", "status"); out != h.run("status", "--json", "p") {
		t.Errorf("status: %q", out)
	}
}

func TestCallRefusesWrongArguments(t *testing.T) {
	h := newPod(t)
	tests := []struct {
		args string
		code int
		want string
	}{
		{"call p none", 1, `launcher: the stager of pod "p" has no call-in "none"; known call-ins: attach, broken, extra, logs, restart, run, status`},
		{"call p broken", 1, `launcher: execute /opt/stager/broken in pod "p": no such file or directory`},
		{"call q extra", 1, `launcher: no such pod: "q"`},
		{"call p", 2, "launcher: call: want POD NAME [ARGS…]"},
		{"call", 2, "launcher: call: want POD NAME [ARGS…]"},
		{"call p ../../stager", 2, `launcher: call: "../../stager" is not the name of a call-in`},
		{"call p ..", 2, `launcher: call: ".." is not the name of a call-in`},
		{"call p /", 2, `launcher: call: "/" is not the name of a call-in`},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			if r := h.try(strings.Fields(tt.args)...); r.code != tt.code || r.stderr != tt.want+"\n" || r.stdout != "" {
				t.Errorf("%+v, want exit status %d and %q", r, tt.code, tt.want)
			}
		})
	}
}
