package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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
	var a appJournal
	a.open(path, slog.New(slog.DiscardHandler))
	var file bytes.Buffer
	w := a.also("db", priorityError, &file)
	long := strings.Repeat("x", maxJournalLine)
	chunks := []string{"one\ntw", "o\n\nSYSLOG_IDENTIFIER=z\n\x00\xff\n", long[:10], long[10:] + "rest\n", "end"}
	for _, chunk := range chunks {
		if n, err := w.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	closed := make(chan error)
	go func() { closed <- a.close() }()
	for _, line := range []string{"one", "two", "", "SYSLOG_IDENTIFIER=z", "\x00\xff", long, "rest", "end"} {
		want := "SYSLOG_IDENTIFIER=db\nPRIORITY=3\nMESSAGE=" + line + "\n"
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
// its queue, and is told what it has missed when it reads again.
func TestJournalThatStopsReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	conn := fakeJournal(t, path)
	j, err := openJournal(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &journalStream{journal: j, app: "db", priority: priorityInfo}
	const lines = 2 * journalQueue / maxJournalLine
	padding := strings.Repeat("x", maxJournalLine-100)
	for i := range lines {
		fmt.Fprintf(s, "%s line %d\n", padding, i)
	}
	if s.dropped == 0 || j.bytes.Load() > journalQueue {
		t.Errorf("%d lines dropped, %d bytes wait", s.dropped, j.bytes.Load())
	}
	// Half the queue at least must be read before anything more is taken.
	kept, told := 0, 0
	for range journalQueue / maxJournalLine / 2 {
		tally(t, received(t, conn), &kept, &told)
	}
	fmt.Fprintln(s, "again")
	for entry := received(t, conn); !strings.HasSuffix(entry, "MESSAGE=again\n"); entry = received(t, conn) {
		tally(t, entry, &kept, &told)
	}
	if kept+told != lines {
		t.Errorf("%d lines came and %d were said to be lost, of %d", kept, told, lines)
	}
	if err := j.close(); err != nil {
		t.Error(err)
	}
}

// tally counts an entry: a line, or the number of those that are lost.
func tally(t *testing.T, entry string, kept, told *int) {
	t.Helper()
	_, message, _ := strings.Cut(entry, "MESSAGE=")
	var lost int
	if n, _ := fmt.Sscanf(message, "%d lines before this one were dropped", &lost); n == 1 {
		*told += lost
	} else {
		*kept++
	}
}

// The end of the pod does not wait for it either.
func TestJournalThatNeverReadsIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	fakeJournal(t, path)
	j, err := openJournal(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &journalStream{journal: j, app: "db"}
	for range journalLines {
		fmt.Fprintln(s, "x")
	}
	if err := j.close(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestJournalStartedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first := fakeJournal(t, path)
	j, err := openJournal(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &journalStream{journal: j, app: "db"}
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

// startJournald runs systemd's journald with a /run of its own, in which dir is
// /run/systemd, and gives a command for its mount namespace.
func startJournald(t *testing.T, dir string) func(args ...string) []byte {
	t.Helper()
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	cmd := exec.Command("sh", "-ec", `mount --make-rprivate /
		mount -t tmpfs tmpfs /run
		mkdir -p /run/log/journal /run/systemd
		mount --bind "$0" /run/systemd
		mkdir -p /run/systemd/journald.conf.d
		printf '[Journal]\nStorage=volatile\nAudit=\nReadKMsg=no\nForwardToWall=no\nForwardToSyslog=no\n' >/run/systemd/journald.conf.d/test.conf
		exec /lib/systemd/systemd-journald`, dir)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start journald (Debian's systemd): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for message := ""; !strings.Contains(message, "READY=1"); {
		message = received(t, notify)
	}
	return func(args ...string) []byte {
		t.Helper()
		out, err := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(cmd.Process.Pid), "-m"}, args...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
		return out
	}
}

// A real journald has the lines under the app's name, and so has the log file.
func TestClause_C_LOG_01_Journald(t *testing.T) {
	var journald func(...string) []byte
	app := testApp{Name: "web", App: map[string]any{"exec": []string{"/bin/sh", "-c", "echo out; echo err >&2; echo end"}}}
	p := launch(t, []testApp{app}, logged,
		withConfig("log", map[string]any{"driver": "journald"}), withConfig("exitPolicy", "all"),
		func(p *testPod, _ map[string]any) {
			p.mkdir(p.root + "/run/systemd")
			journald = startJournald(p.t, p.root+"/run/systemd")
		})
	if code := p.exits(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.messages())
	}
	journald("journalctl", "--sync")
	out := map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(journald("journalctl", "--directory=/run/log/journal", "-t", "web", "-o", "json"))); decoder.More(); {
		var entry struct{ MESSAGE, PRIORITY string }
		if err := decoder.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		out[entry.PRIORITY] = append(out[entry.PRIORITY], entry.MESSAGE)
	}
	if diff := cmp.Diff(map[string][]string{"6": {"out", "end"}, "3": {"err"}}, out); diff != "" {
		t.Error(diff)
	}
	if text, err := os.ReadFile(filepath.Join(p.root, logDir, "web", "0000000001.log")); err != nil || strings.Count(string(text), "\n") != 3 {
		t.Errorf("%v: the log file has %q", err, text)
	}
}

func TestClause_C_LOG_01_NoJournaldIsToldOnce(t *testing.T) {
	app := func(name string) testApp {
		return testApp{Name: name, App: map[string]any{"exec": []string{"/bin/echo", "x"}}}
	}
	p := launch(t, []testApp{app("a"), app("b")}, logged, withConfig("log", map[string]any{"driver": "journald"}))
	p.isReady()
	if n := strings.Count(p.messages(), "goes to files only"); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.messages())
	}
}
