package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"kurma.io/stager/launcher/daemon"
)

// Lines of several apps are printed one at a time, each with its app's label, and a long line in parts, as it may have
// no end.
func TestLabelsStandBeforeWholeLines(t *testing.T) {
	var out bytes.Buffer
	p := (&cli{stdout: &out, stderr: &out}).newLinePrinter([]string{"a", "b"}, true)
	for _, line := range []daemon.LogLine{
		{App: "a", Stamp: "1", Text: "one", First: true, Whole: true},
		{App: "a", Stamp: "2", Text: "tw", First: true, More: true},
		{App: "b", Stamp: "3", Text: "x", First: true, Whole: true, Stream: "stderr"},
		{App: "a", Stamp: "2", Text: "o", Whole: true},
		{App: "a", Stamp: "4", Text: "three", First: true},
	} {
		if err := p.print(line); err != nil {
			t.Fatal(err)
		}
	}
	if want := "a | 1 one\na | 2 tw\nb | 3 x\na | 2 o\na | 4 three\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// A line is an object, and so is each part of a long one.
func TestLinesArePrintedAsJSON(t *testing.T) {
	var out bytes.Buffer
	p := (&cli{stdout: &out, json: true}).newLinePrinter([]string{"a", "b"}, false)
	for _, line := range []daemon.LogLine{{App: "a", Stream: "stdout", Stamp: "1", Text: "tw", First: true, More: true}, {App: "a", Stream: "stdout", Stamp: "1", Text: "o", Whole: true}} {
		if err := p.print(line); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"time":"1","stream":"stdout","app":"a","message":"tw","partial":true}` + "\n" + `{"time":"1","stream":"stdout","app":"a","message":"o"}` + "\n"
	if out.String() != want {
		t.Errorf("%s, want %s", &out, want)
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
