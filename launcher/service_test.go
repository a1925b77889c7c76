package main

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"

	"kurma.io/stager/boot/journal"
	"kurma.io/stager/launcher/daemon"
)

// An app's line is an entry of the journal. A message of the stager's call-in is no app's line, and a line that the
// journal does not take is not lost: both are printed.
func TestLinesForTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var stdout, stderr bytes.Buffer
	printer := (&cli{stdout: &stdout, stderr: &stderr}).newLinePrinter([]string{"db"}, false)
	s := &journalSender{linePrinter: printer, path: path, pod: journal.Origin{Name: "web", UUID: "u"}}
	for _, line := range []daemon.LogLine{
		{App: "db", Stream: "stderr", Text: "logs: no such log"},
		{App: "db", Stream: "stderr", Text: "an error", Stamp: "2026-01-01T00:00:00Z", First: true, Whole: true},
	} {
		if err := s.send(line); err != nil {
			t.Fatal(err)
		}
	}
	entry := make([]byte, 1<<10)
	n, err := conn.Read(entry)
	const want = "SYSLOG_IDENTIFIER=db\nKURMA_APP=db\nKURMA_POD=web\nKURMA_POD_UUID=u\nPRIORITY=3\nMESSAGE=an error\n"
	if err != nil || string(entry[:n]) != want {
		t.Errorf("%q, %v", entry[:n], err)
	}
	_ = conn.Close()
	line := daemon.LogLine{App: "db", Stream: "stdout", Text: "a line", Stamp: "2026-01-01T00:00:00Z", First: true, Whole: true}
	if err := s.send(line); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != "a line\n" || stderr.String() != "logs: no such log\n" {
		t.Errorf("printed are %q and %q", stdout.String(), stderr.String())
	}
}
