package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Whole lines of several apps are written one at a time, each with its app's label, however
// their parts arrive.
func TestLabelsStandBeforeWholeLines(t *testing.T) {
	var out bytes.Buffer
	var writing sync.Mutex
	a := &labeller{out: &out, writing: &writing, label: "a | "}
	b := &labeller{out: &out, writing: &writing, label: "b | "}
	for _, step := range []struct {
		to   *labeller
		text string
	}{{a, "one\ntw"}, {b, "x\n"}, {a, "o\n\nthree"}, {b, ""}} {
		if n, err := step.to.Write([]byte(step.text)); n != len(step.text) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	}
	for _, l := range []*labeller{a, b} {
		if err := l.flush(); err != nil {
			t.Error(err)
		}
	}
	if want := "a | one\nb | x\na | two\na | \na | three\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// An app's colour is always the same, and there is none for who wants none.
func TestLabelColours(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if first, again := appLabel("web", 5, true), appLabel("web", 5, true); first != again || !strings.HasPrefix(first, "\x1b[") || !strings.Contains(first, "web   | \x1b[0m") {
		t.Errorf("%q, then %q", first, again)
	}
	if appLabel("web", 3, true)[:5] == appLabel("db", 3, true)[:5] {
		t.Error("web and db have the same colour")
	}
	t.Setenv("NO_COLOR", "1")
	if label := appLabel("web", 5, true); label != "web   | " {
		t.Errorf("with NO_COLOR: %q", label)
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if label := appLabel("web", 5, true); label != "web   | " {
		t.Errorf("on a dumb terminal: %q", label)
	}
	t.Setenv("TERM", "xterm")
	if label := appLabel("web", 5, false); label != "web   | " {
		t.Errorf("in a pipe: %q", label)
	}
}

// The output of a pod in the foreground is shown with labels, in a pipe and on a terminal, and only for several apps.
func TestForegroundLabelsTheApps(t *testing.T) {
	h := newHost(t)
	t.Setenv("NO_COLOR", "1")
	id := h.listed()["example.com/one"].ID
	for _, apps := range []string{"one", "one two"} {
		var list []string
		for _, name := range strings.Fields(apps) {
			list = append(list, fmt.Sprintf(`{"name":%q,"image":{"id":%q}}`, name, id))
		}
		pod := h.text("talks.json", `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[`+strings.Join(list, ",")+`]}`)
		r := h.try("run", "--rm", pod)
		if labelled := strings.Contains(r.stdout, "two | words\n"); r.code != 3 || labelled != (len(list) > 1) || strings.Count(r.stdout, "words\n") != len(list) {
			t.Errorf("%s: %+v", apps, r)
		}
		cmd := h.command("run", "--rm", pod)
		script := exec.Command("script", "--quiet", "--return", "--command", strings.Join(cmd.Args, " "), "/dev/null")
		script.Env = cmd.Env
		out, _ := script.Output()
		if labelled := strings.Contains(string(out), "two | words\r\n"); labelled != (len(list) > 1) || !strings.Contains(string(out), "words\r\n") {
			t.Errorf("%s: on a terminal: %q", apps, out)
		}
	}
}
