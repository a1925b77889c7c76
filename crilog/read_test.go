package crilog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// output collects what Read passes on.
type output struct{ out, err, all bytes.Buffer }

func (o *output) entry(e Entry) error {
	b := &o.out
	if e.Stream == Stderr {
		b = &o.err
	}
	for _, b := range []*bytes.Buffer{b, &o.all} {
		b.Write(e.Text)
		if !e.Partial && !e.Ended {
			b.WriteByte('\n')
		}
	}
	return nil
}

func read(t *testing.T, dir string, opts ReadOptions) *output {
	t.Helper()
	o := new(output)
	if err := Read(t.Context(), dir, opts, o.entry); err != nil {
		t.Fatal(err)
	}
	return o
}

var all = ReadOptions{Tail: -1}

func TestReadReturnsEveryByte(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{MaxSize: 90_000, MaxFiles: 1000})
	rnd := rand.New(rand.NewPCG(3, 3))
	var want output
	for range 150 {
		chunk := randomChunk(rnd)
		if rnd.IntN(2) == 0 {
			w.Append(Stdout, chunk)
			want.out.Write(chunk)
		} else {
			w.Append(Stderr, chunk)
			want.err.Write(chunk)
		}
	}
	for _, opts := range []ReadOptions{all, {Tail: 1 << 30}} {
		got := read(t, dir, opts)
		if !bytes.Equal(got.out.Bytes(), want.out.Bytes()) || !bytes.Equal(got.err.Bytes(), want.err.Bytes()) {
			t.Errorf("%+v: a stream differs from what was written", opts)
		}
	}
}

func TestReadReturnsALongLineWithoutANewline(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{MaxSize: 1 << 30})
	want := bytes.Repeat([]byte("\x00\xffabc\r"), 16<<20/6)
	for chunk := want; len(chunk) > 0; chunk = chunk[min(len(chunk), 64<<10):] {
		w.Append(Stdout, chunk[:min(len(chunk), 64<<10)])
	}
	for _, opts := range []ReadOptions{all, {Tail: 1}} {
		if got := read(t, dir, opts); !bytes.Equal(got.out.Bytes(), want) {
			t.Errorf("%+v: got %d bytes, want %d", opts, got.out.Len(), len(want))
		}
	}
}

const (
	at1 = "2026-11-21T03:00:01.000000000Z "
	at2 = "2026-11-21T03:00:02.000000000Z "
	at3 = "2026-11-21T03:00:03.000000000Z "
)

// writeFiles makes a log of the given files.
func writeFiles(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, text := range files {
		if err := os.WriteFile(fileName(dir, uint64(i+1)), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadSelectsByItsOptions(t *testing.T) {
	interleaved := []string{
		at1 + "stdout F one\n" + at1 + "stdout P t\n" + at1 + "stderr F err\n",
		at2 + "stdout P w\n" + at3 + "stderr F err2\n",
		at3 + "stdout F o\n" + at3 + "stdout P last",
	}
	for _, test := range []struct {
		name  string
		files []string
		opts  ReadOptions
		want  string
	}{
		{"all", interleaved, all, "one\nterr\nwerr2\no\nlast"},
		{"stdout", interleaved, ReadOptions{Tail: -1, Stream: Stdout}, "one\ntwo\nlast"},
		{"stderr", interleaved, ReadOptions{Tail: -1, Stream: Stderr}, "err\nerr2\n"},
		{"tail 0", interleaved, ReadOptions{Tail: 0}, ""},
		{"tail 1 is the unfinished line", interleaved, ReadOptions{Tail: 1}, "last"},
		{"tail 2 takes a line from its first record", interleaved, ReadOptions{Tail: 2}, "two\nlast"},
		{"tail 3", interleaved, ReadOptions{Tail: 3}, "twerr2\no\nlast"},
		{"tail 4", interleaved, ReadOptions{Tail: 4}, "terr\nwerr2\no\nlast"},
		{"tail 5", interleaved, ReadOptions{Tail: 5}, "one\nterr\nwerr2\no\nlast"},
		{"tail 99", interleaved, ReadOptions{Tail: 99}, "one\nterr\nwerr2\no\nlast"},
		{"tail 1 of stderr", interleaved, ReadOptions{Tail: 1, Stream: Stderr}, "err2\n"},
		{"tail 2 of stdout", interleaved, ReadOptions{Tail: 2, Stream: Stdout}, "two\nlast"},
		{"since leaves out lines that began before", interleaved, ReadOptions{Tail: -1, Since: second(2)}, "err2\nlast"},
		{"since is inclusive", interleaved, ReadOptions{Tail: -1, Since: second(3)}, "err2\nlast"},
		{"since and tail", interleaved, ReadOptions{Tail: 4, Since: second(3)}, "err2\nlast"},
		{"since the future", interleaved, ReadOptions{Tail: -1, Since: second(9)}, ""},
		{"no files", nil, all, ""},
		{"tail of no files", nil, ReadOptions{Tail: 3}, ""},
		{"empty files", []string{"", ""}, ReadOptions{Tail: 3}, ""},
		{"torn in a header", []string{at1 + "stdout F x\n" + at2 + "std"}, all, "x\n"},
		{"torn after the header", []string{at1 + "stdout F x\n" + at2 + "stdout F y"}, all, "x\ny"},
		{"torn in an older file", []string{at1 + "stdout F x", at2 + "stdout F y\n"}, all, "xy\n"},
		{"tail of torn", []string{at1 + "stdout F x\n" + at2 + "stdout F y"}, ReadOptions{Tail: 1}, "y"},
		{"malformed lines are passed over", []string{"\n \nx\n" + at1 + "stdin F no\n" + at1 + "stdout Q no\n" + at1 + "stdout F\n" +
			"yesterday stdout F no\n" + at1 + "stdout F yes\n" + strings.Repeat("\x00", 300<<10) + "\n" + at1 + "stdout F end\n"}, all, "yes\nend\n"},
		{"tail over a line longer than any", []string{at1 + "stdout F yes\n" + strings.Repeat("\x00", 300<<10) + "\n" + at1 + "stdout F end\n"}, ReadOptions{Tail: 2}, "yes\nend\n"},
		{"other writers' forms", []string{"2026-11-21T05:00:01+02:00 stdout F:x a\n" + "2026-11-21T03:00:01.5Z stderr P b\n"}, all, "a\nb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := read(t, writeFiles(t, test.files...), test.opts)
			if diff := cmp.Diff(test.want, got.all.String()); diff != "" {
				t.Errorf("output differs (-want +got):\n%s", diff)
			}
		})
	}
}

// The last lines of a large log are read at once: to read 1 TiB takes hours.
func TestATailReadsNoOlderFiles(t *testing.T) {
	dir := writeFiles(t, "", at1+"stdout F old\n"+at2+"stdout F new\n")
	if err := os.Truncate(fileName(dir, 1), 1<<40); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got output
	if err := Read(ctx, dir, ReadOptions{Tail: 1}, got.entry); err != nil || got.all.String() != "new\n" {
		t.Errorf("%q, %v", got.all.String(), err)
	}
}

func second(s int) time.Time { return time.Date(2026, 11, 21, 3, 0, s, 0, time.UTC) }

func TestReadOfAMissingFolderIsAnError(t *testing.T) {
	err := Read(t.Context(), filepath.Join(t.TempDir(), "none"), all, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

func TestReadReturnsTheCallbacksError(t *testing.T) {
	stop := errors.New("stop")
	dir := writeFiles(t, at1+"stdout F x\n")
	err := Read(t.Context(), dir, all, func(Entry) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
}

func TestReadReturnsTimeStreamAndText(t *testing.T) {
	dir := writeFiles(t, "2026-11-21T05:00:01.5+02:00 stderr P some text\n")
	err := Read(t.Context(), dir, all, func(e Entry) error {
		want := Entry{second(1).Add(time.Second / 2), Stderr, true, []byte("some text"), false}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("entry differs (-want +got):\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A reader that does not follow ends although the app writes all the time.
func TestReadEndsWhereTheLogEnded(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	w.Append(Stdout, []byte("first\n"))
	var got output
	err := Read(t.Context(), dir, all, func(e Entry) error {
		w.Append(Stdout, []byte("more\n"))
		return got.entry(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("first\n", got.all.String()); diff != "" {
		t.Error(diff)
	}
}

func TestReadSurvivesRotationUnderneath(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{MaxSize: 1024, MaxFiles: 3})
	line := []byte(fmt.Sprintf("%0500d\n", 0))
	for range 6 {
		w.Append(Stdout, line)
	}
	n := 0
	err := Read(t.Context(), dir, all, func(Entry) error {
		n++
		for range 20 {
			w.Append(Stdout, line)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d records, error %v", n, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(at1+"stdout F one\n"+at2+"stderr P two"), 1)
	f.Add([]byte("\n\n"+at1+"stdout F \n"+at1[:9]), 0)
	f.Fuzz(func(t *testing.T, file []byte, tail int) {
		dir := t.TempDir()
		if err := os.WriteFile(fileName(dir, 1), file, 0o640); err != nil {
			t.Fatal(err)
		}
		var whole, last output
		if err := Read(context.Background(), dir, all, whole.entry); err != nil {
			t.Fatal(err)
		}
		if err := Read(context.Background(), dir, ReadOptions{Tail: max(tail, 0)}, last.entry); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(whole.out.Bytes(), last.out.Bytes()) || !bytes.HasSuffix(whole.err.Bytes(), last.err.Bytes()) {
			t.Error("the tail is not the end of the whole")
		}
		w, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var repaired output
		if err := Read(context.Background(), dir, all, repaired.entry); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(whole.out.Bytes(), repaired.out.Bytes()) || !bytes.HasPrefix(whole.err.Bytes(), repaired.err.Bytes()) {
			t.Error("repair changed what was whole")
		}
	})
}
