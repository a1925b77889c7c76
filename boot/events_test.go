package boot

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot/journal"
	"kurma.io/stager/crilog"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/tests/surroundings"
)

// The file of changes has whole lines and stays within its limit, with the lines before it in the old one.
func TestChangesOfAppsAreKeptInABoundedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	var log bytes.Buffer
	events, err := openEvents(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	reason := strings.Repeat("x", 100<<10)
	for range 25 {
		events.changed(supervisor.Change{App: "a", State: supervisor.StateEnding, Reason: reason})
	}
	if err := events.close(); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string]int{path: 5, path + names.OldSuffix: 10} {
		text, err := os.ReadFile(name)
		if err != nil || len(text) > maxEvents || bytes.Count(text, []byte("\n")) != lines || !bytes.HasPrefix(text, []byte(`{"time":`)) || text[len(text)-1] != '\n' {
			t.Errorf("%s: %d bytes, %d lines, want %d: %v", name, len(text), bytes.Count(text, []byte("\n")), lines, err)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
	events.changed(supervisor.Change{App: "a", State: supervisor.StateRunning}) // the file is closed
	if !strings.Contains(log.String(), "app=a state=running") {
		t.Errorf("a change that is lost is not logged: %s", &log)
	}
}

// The daemon finds the changes before a flush in the file, although a goroutine writes them.
func TestAFlushWaitsForTheChangesBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	events, err := openEvents(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		events.changed(supervisor.Change{App: "a", State: supervisor.StateRunning})
		if err := events.flush(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || bytes.Count(text, []byte("\n")) != i+1 {
			t.Fatalf("after %d changes: %q, %v", i+1, text, err)
		}
	}
	if err := events.close(); err != nil {
		t.Error(err)
	}
	if err := events.flush(); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// A file that cannot be begun is tried again with the next change, and is no error at the pod's end.
func TestChangesOfAppsGoOnAfterAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	path := filepath.Join(dir, "events")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	events, err := openEvents(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	change := func(reason string) {
		events.record(supervisor.Change{App: "a", State: supervisor.StateEnding, Reason: reason})
	}
	change(strings.Repeat("x", maxEvents-100))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	change("lost")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	change("kept")
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "kept") || strings.Contains(string(text), "lost") {
		t.Errorf("%q, %v", text, err)
	}
	if strings.Count(log.String(), "not recorded") != 1 {
		t.Errorf("logged: %s", &log)
	}
	if err := events.close(); err != nil {
		t.Error(err)
	}
}

// No app waits for a file that takes no more.
func TestAHangingFileOfChangesDelaysNoApp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	events, err := openEvents(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for range 3 {
			events.changed(supervisor.Change{App: "a", State: supervisor.StateEnding, Reason: strings.Repeat("x", 100<<10)})
		}
	}()
	select {
	case <-changed:
	case <-time.After(surroundings.Patience):
		t.Error("the app waits for the file")
	}
	go func() { _, _ = io.Copy(io.Discard, pipe) }() // which then takes more
	if err := events.close(); err != nil {
		t.Error(err)
	}
}

// A log that hangs does not keep the pod from its end.
func TestAHangingLogDoesNotKeepThePod(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		log := hangingLog(make(chan struct{}))
		defer close(log)
		p := &Pod{Parts: Parts{Log: slog.New(slog.DiscardHandler)}, journal: new(journal.Journal)}
		p.endApp("a", log)
	})
}

type hangingLog chan struct{}

func (hangingLog) Append(crilog.Stream, []byte) {}

func (hangingLog) EndLines() {}

func (l hangingLog) Close() error {
	<-l
	return nil
}
