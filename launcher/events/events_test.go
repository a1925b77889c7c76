package events

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func event(pod string) Event {
	return Event{Time: time.Unix(1, 0).UTC(), Action: Created, UUID: "0", Pod: pod}
}

func record(t *testing.T, path, pod string) {
	t.Helper()
	if err := Append(path, event(pod)); err != nil {
		t.Fatal(err)
	}
}

// names returns the pods of all events that the reader has so far.
func names(t *testing.T, r *Reader) string {
	t.Helper()
	var all []string
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(all, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Pod)
	}
}

func reader(t *testing.T, path string, past bool) *Reader {
	t.Helper()
	r, err := NewReader(path, past)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestReadersGetWhatIsRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	early := reader(t, path, false) // before there is a file
	if got := names(t, early); got != "" {
		t.Errorf("no file: %q", got)
	}
	record(t, path, "a")
	late, all := reader(t, path, false), reader(t, path, true)
	record(t, path, "b")
	for want, r := range map[string]*Reader{"a b": early, "b": late, " a b": all} {
		if got := names(t, r); got != strings.TrimSpace(want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A reader that has read a file to its end gets the rest of it, and all of the next two.
func TestReadersFollowTheFileThatIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	record(t, path, "first")
	r := reader(t, path, true)
	if got := names(t, r); got != "first" {
		t.Fatal(got)
	}
	record(t, path, "second")
	for _, pod := range []string{"third", "fourth"} {
		if err := os.Rename(path, path+oldSuffix); err != nil {
			t.Fatal(err)
		}
		record(t, path, pod)
	}
	if got := names(t, r); got != "second third fourth" {
		t.Errorf("%q", got)
	}
	if got := names(t, reader(t, path, true)); got != "third fourth" {
		t.Errorf("what is kept: %q", got)
	}
}

// A reader of new events gets none of a file whose writer was killed when it had renamed it.
func TestANewReaderGetsNothingOfTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	record(t, path, "old")
	if err := os.Rename(path, path+oldSuffix); err != nil {
		t.Fatal(err)
	}
	r := reader(t, path, false)
	record(t, path, "new")
	if got := names(t, r); got != "new" {
		t.Errorf("%q", got)
	}
}

// Writers at the same time lose no event of each other, and the files stay bounded.
func TestTheFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	r := reader(t, path, false)
	const writers, each = 4, 60
	long := strings.Repeat("x", 5<<10) // a file and a fifth of them
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			for i := range each {
				if err := Append(path, event(fmt.Sprint(n, "-", i, "-", long))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var got int
	written := make(chan struct{})
	go func() {
		writing.Wait()
		close(written)
	}()
	for last := false; !last; {
		select {
		case <-written:
			last = true
		default: // at the same time: it is at the file's end when the file is replaced
		}
		got += len(strings.Fields(names(t, r)))
	}
	if got != writers*each {
		t.Errorf("%d events, want %d", got, writers*each)
	}
	for _, name := range []string{path, path + oldSuffix} {
		info, err := os.Stat(name)
		if err != nil || info.Size() > maxSize {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestDamagedLinesAreLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(path, []byte("{\"action\":\"cre\n{}\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := reader(t, path, true)
	record(t, path, "a")
	if got := names(t, r); got != "a" {
		t.Errorf("%q", got)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i, part := range []string{`{"action":"crea`, `ted","pod":"b"}` + "\n"} {
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if got, want := names(t, r), []string{"", "b"}[i]; got != want {
			t.Errorf("a line in two parts: %q, want %q", got, want)
		}
	}
}

func TestEventsOfANewMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods", "events")
	r := reader(t, path, true)
	if got := names(t, r); got != "" {
		t.Error(got)
	}
	record(t, path, "first")
	if got := names(t, r); got != "first" {
		t.Errorf("%q", got)
	}
}
