package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// What takes long is told on one line, which is erased at the end; what is short is not.
func TestLongWorkIsTold(t *testing.T) {
	var long, short bytes.Buffer
	done := (&cli{stderr: &short}).busyEvery(time.Hour, "stop")
	done()
	done()
	if short.Len() > 0 {
		t.Errorf("short work printed %q", &short)
	}
	told := &notified{Buffer: &long, written: make(chan struct{}, 1)}
	done = (&cli{stderr: told}).busyEvery(time.Millisecond, "stop pods")
	<-told.written
	done()
	if text := long.String(); !strings.HasPrefix(text, "\r\x1b[Klauncher: stop pods … ") || !strings.HasSuffix(text, " s\r\x1b[K") || strings.Contains(text, "\n") {
		t.Errorf("long work printed %q", text)
	}
}

// notified reports each write.
type notified struct {
	*bytes.Buffer
	written chan struct{}
}

func (n *notified) Write(data []byte) (int, error) {
	defer func() {
		select {
		case n.written <- struct{}{}:
		default: // nobody has read the last ones
		}
	}()
	return n.Buffer.Write(data)
}

func TestImportsTellHowFarTheyAre(t *testing.T) {
	var out bytes.Buffer
	report := (&cli{stderr: &out}).progressAfter(0, "a.aci")
	for _, done := range []int64{0, 1, 50, 50, 100, 100} {
		report(done, 100)
	}
	if want := "\r\x1b[Klauncher: import a.aci … 0 %\r\x1b[Klauncher: import a.aci … 1 %\r\x1b[Klauncher: import a.aci … 50 %\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	report = (&cli{stderr: &out}).progressAfter(time.Hour, "a.aci")
	report(1, 100)
	report(100, 100)
	if out.Len() > 0 {
		t.Errorf("a short import printed %q", &out)
	}
}

// Nothing of it is printed where there is no terminal.
func TestProgressIsQuietWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	c := &cli{stderr: &out}
	done := c.busy("stop")
	done()
	if c.progress("x") != nil || out.Len() > 0 {
		t.Errorf("printed %q", &out)
	}
}
