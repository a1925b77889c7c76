package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// A line of any length is printed in small parts of whole characters, which together
// are the line.
func TestLongLinesArePrintedAsJSONInParts(t *testing.T) {
	const when = "2026-11-21T07:56:41.267098441Z"
	long := strings.Repeat("é☃𝄞", 100_000)
	var out bytes.Buffer
	c := &cli{stdout: &out, stderr: io.Discard}
	p := &linePrinter{cli: c, app: "a", stream: "stdout", printing: new(sync.Mutex)}
	if err := copyParts(strings.NewReader(when+" short\n"+when+" "+long+"\n"+when+" last"), p.take); err != nil {
		t.Fatal(err)
	}
	var whole strings.Builder
	var lines []string
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var l logLine
		if err := decoder.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.Time != when || l.Stream != "stdout" || l.App != "a" || len(l.Message) > maxPart+utf8.UTFMax {
			t.Errorf("part of %d bytes at %q of %s of %s", len(l.Message), l.Time, l.Stream, l.App)
		}
		whole.WriteString(l.Message)
		if !l.Partial {
			lines = append(lines, whole.String())
			whole.Reset()
		}
	}
	if len(lines) != 3 || lines[0] != "short" || lines[1] != long || lines[2] != "last" {
		t.Errorf("%d lines", len(lines))
	}
}

// The lock of a log that is written in a virtual machine is held there: the launcher finds it free, though the app
// runs, and leaves the log to the call-in.
func TestLogsThatAreLockedElsewhereAreTheCallIns(t *testing.T) {
	h := newHost(t)
	h.run("run", "--detach", "--name", "elsewhere", "example.com/one")
	for args, want := range map[string]string{
		"logs --follow elsewhere": "logs --follow one\n",
		"logs elsewhere":          "words\n",
	} {
		if out := h.run(strings.Fields(args)...); out != want {
			t.Errorf("%s: %q, want %q", args, out, want)
		}
		if out := h.onTerminal(strings.Fields(args)...); out != want {
			t.Errorf("%s on a terminal: %q, want %q", args, out, want)
		}
	}
	h.run("stop", "elsewhere")
	if out := h.run("logs", "--follow", "elsewhere"); out != "words\n" {
		t.Errorf("after the end: %q", out)
	}
	h.run("rm", "elsewhere")
}

// A message of the call-in itself is not printed as a line of the app.
func TestTheCallInsMessagesAreNotLinesOfTheApp(t *testing.T) {
	var out, errors bytes.Buffer
	p := &linePrinter{cli: &cli{stdout: &out, stderr: &errors}, printing: new(sync.Mutex)}
	if err := copyParts(strings.NewReader("logs: no app \"b\"\n"), p.take); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 || errors.String() != "logs: no app \"b\"\n" {
		t.Errorf("printed %q, errors %q", &out, &errors)
	}
}
