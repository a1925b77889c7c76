package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeJournal is a socket that speaks the protocol's other side.
func fakeJournal(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// received is the next entry.
func received(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 1<<20)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestJournalStreamCutsLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	conn := fakeJournal(t, path)
	a := Open(path, Origin{Name: "web\n2", UUID: "u"}, slog.New(slog.DiscardHandler))
	var file bytes.Buffer
	w := a.Tee("db", Error, &file)
	long := strings.Repeat("x", maxJournalLine)
	chunks := []string{"one\ntw", "o\n\nSYSLOG_IDENTIFIER=z\n\x00\xff\n", long[:10], long[10:] + "rest\n", "end"}
	for _, chunk := range chunks {
		if n, err := w.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	closed := make(chan error)
	go func() { closed <- a.Close() }()
	for _, line := range []string{"one", "two", "", "SYSLOG_IDENTIFIER=z", "\x00\xff", long, "rest", "end"} {
		want := "SYSLOG_IDENTIFIER=db\nKURMA_APP=db\nKURMA_POD\n\x05\x00\x00\x00\x00\x00\x00\x00web\n2\nKURMA_POD_UUID=u\nPRIORITY=3\nMESSAGE=" + line + "\n"
		if diff := cmp.Diff(want, received(t, conn)); diff != "" {
			t.Error(diff)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if file.String() != strings.Join(chunks, "") {
		t.Error("the file differs from what was written")
	}
}

// A journal that does not read keeps no app waiting, takes no more memory than
// its queue, and gets the number of dropped lines when it reads again.
func TestJournalThatStopsReadingDelaysNoApp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	conn := fakeJournal(t, path)
	j, err := connect(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{journal: j, app: "db", priority: Info}
	const lines = 2 * journalQueue / maxJournalLine
	padding := strings.Repeat("x", maxJournalLine-100)
	for i := range lines {
		fmt.Fprintf(s, "%s line %d\n", padding, i)
	}
	if s.dropped == 0 || j.bytes.Load() > journalQueue {
		t.Errorf("%d lines dropped, %d bytes wait", s.dropped, j.bytes.Load())
	}
	// Half the queue at least must be read before anything more is taken.
	kept, dropped := 0, 0
	for range journalQueue / maxJournalLine / 2 {
		tally(t, received(t, conn), &kept, &dropped)
	}
	fmt.Fprintln(s, "again")
	for entry := received(t, conn); !strings.HasSuffix(entry, "MESSAGE=again\n"); entry = received(t, conn) {
		tally(t, entry, &kept, &dropped)
	}
	if kept+dropped != lines {
		t.Errorf("%d lines came and %d were reported as dropped, of %d", kept, dropped, lines)
	}
	if err := j.close(); err != nil {
		t.Error(err)
	}
}

// tally counts an entry: a line, or the number of those that are lost.
func tally(t *testing.T, entry string, kept, dropped *int) {
	t.Helper()
	_, message, _ := strings.Cut(entry, "MESSAGE=")
	var lost int
	if n, _ := fmt.Sscanf(message, "%d lines before this one were dropped", &lost); n == 1 {
		*dropped += lost
	} else {
		*kept++
	}
}

// The end of the pod does not wait for it either.
func TestJournalThatNeverReadsIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	fakeJournal(t, path)
	j, err := connect(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{journal: j, app: "db"}
	for range journalLines {
		fmt.Fprintln(s, "x")
	}
	if err := j.close(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// Send waits for a journal that does not read, so that every line arrives, also with the next journal.
func TestSendLosesNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	conn := fakeJournal(t, path)
	const lines = 2000 // more than a socket's queue has room for (net.unix.max_dgram_qlen)
	sent := make(chan error, 1)
	go func() {
		for i := range lines {
			if err := Send(path, Origin{Name: "web", UUID: "u"}, "db", Info, fmt.Sprint("line ", i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range lines {
		want := fmt.Sprintf("SYSLOG_IDENTIFIER=db\nKURMA_APP=db\nKURMA_POD=web\nKURMA_POD_UUID=u\nPRIORITY=6\nMESSAGE=line %d\n", i)
		if diff := cmp.Diff(want, received(t, conn)); diff != "" {
			t.Fatal(diff)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := Send(path, Origin{}, "db", Info, "lost"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a journal: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second := fakeJournal(t, path)
	if err := Send(path, Origin{}, "db", Error, strings.Repeat("x", 64<<10)); err != nil {
		t.Fatal(err)
	}
	if got := received(t, second); !strings.HasSuffix(got, "x\n") {
		t.Errorf("got %q", got)
	}
}

func TestARestartedJournalReceivesLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first := fakeJournal(t, path)
	j, err := connect(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{journal: j, app: "db"}
	fmt.Fprintln(s, "a")
	received(t, first)
	first.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second := fakeJournal(t, path)
	fmt.Fprintln(s, "b")
	if got := received(t, second); !strings.HasSuffix(got, "MESSAGE=b\n") {
		t.Errorf("got %q", got)
	}
	if err := j.close(); err != nil {
		t.Error(err)
	}
}
