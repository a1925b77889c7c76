package crilog

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// onDisk returns the text of every record in dir, by stream, and fails on any line that is not a record.
func onDisk(t *testing.T, dir string) map[Stream]string {
	t.Helper()
	numbers, err := fileNumbers(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := map[Stream][]byte{}
	var p parser
	for _, n := range numbers {
		data, err := os.ReadFile(fileName(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			e, ok := p.parse(bytes.TrimSuffix(line, []byte("\n")), false)
			if !ok || !bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("file %d: no record: %.100q", n, line)
			}
			text[e.Stream] = append(text[e.Stream], e.Text...)
			if !e.Partial && !e.Ended {
				text[e.Stream] = append(text[e.Stream], '\n')
			}
		}
	}
	got := map[Stream]string{}
	for s, b := range text {
		got[s] = string(b)
	}
	return got
}

func open(t *testing.T, dir string, opts Options) *Writer {
	t.Helper()
	w, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestWriterKeepsEveryByte(t *testing.T) {
	type write struct {
		s    Stream
		text string
	}
	long := strings.Repeat("x", 300<<10)
	for _, test := range []struct {
		name   string
		writes []write
	}{
		{"one line", []write{{Stdout, "hello\n"}}},
		{"several lines in one chunk", []write{{Stdout, "a\nb\nc\n"}}},
		{"empty lines", []write{{Stdout, "\n\n\n"}}},
		{"partial last line", []write{{Stdout, "a\nb"}}},
		{"newline on its own", []write{{Stdout, "a"}, {Stdout, "\n"}}},
		{"streams interleave in the middle of lines", []write{{Stdout, "out"}, {Stderr, "err"}, {Stdout, "put\n"}, {Stderr, "or\n"}}},
		{"binary", []write{{Stderr, "\x00\x01\xff\r\n\x00"}}},
		{"record look-alike", []write{{Stdout, "2026-11-21T03:16:40.000000000Z stderr F no\n"}}},
		{"long line in one chunk", []write{{Stdout, long + "\n"}}},
		{"long line without newline", []write{{Stdout, long}, {Stdout, long}}},
		{"exactly the longest text", []write{{Stdout, long[:maxText] + "\n" + long[:maxText+1] + "\n"}}},
		{"empty chunk", []write{{Stdout, ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			w := open(t, dir, Options{MaxSize: 1 << 30})
			want := map[Stream]string{}
			for _, x := range test.writes {
				w.Append(x.s, []byte(x.text))
				if x.text != "" {
					want[x.s] += x.text
				}
			}
			if diff := cmp.Diff(want, onDisk(t, dir)); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriterWritesTheCRIFormat(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	at := time.Date(2016, 10, 6, 0, 17, 9, 669794202, time.FixedZone("", 7200))
	w.now = func() time.Time { at = at.Add(time.Nanosecond); return at }
	w.Append(Stdout, []byte("one\ntwo"))
	at = at.Add(330205799)
	w.Append(Stderr, []byte("\n"))
	got, err := os.ReadFile(fileName(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	want := "2016-10-05T22:17:09.669794203Z stdout F one\n" +
		"2016-10-05T22:17:09.669794203Z stdout P two\n" +
		"2016-10-05T22:17:10.000000003Z stderr F \n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("file differs (-want +got):\n%s", diff)
	}
}

// checkLimits fails when the folder holds more or longer files than opts allow.
func checkLimits(t *testing.T, dir string, opts Options) {
	t.Helper()
	numbers, err := fileNumbers(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(numbers) > opts.MaxFiles {
		t.Errorf("%d files, want at most %d", len(numbers), opts.MaxFiles)
	}
	for _, n := range numbers {
		info, err := os.Stat(fileName(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > opts.MaxSize {
			t.Errorf("file %d has %d bytes, want at most %d", n, info.Size(), opts.MaxSize)
		}
	}
}

func TestWriterRotates(t *testing.T) {
	for _, size := range []int64{1024, 1100, 4096, 100_000, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := t.TempDir()
			opts := Options{MaxSize: size, MaxFiles: 3}
			w := open(t, dir, opts)
			rnd := rand.New(rand.NewPCG(1, uint64(size)))
			var all []byte
			for len(all) < int(size)*10 {
				chunk := randomChunk(rnd)
				w.Append(Stdout, chunk)
				all = append(all, chunk...)
				checkLimits(t, dir, opts)
			}
			got := onDisk(t, dir)[Stdout]
			if !strings.HasSuffix(string(all), got) || len(got) < int(size) {
				t.Errorf("the %d bytes kept are not the last ones written, or too few", len(got))
			}
		})
	}
}

// randomChunk is up to 64 KiB with newlines at odds from all to none.
func randomChunk(rnd *rand.Rand) []byte {
	chunk := make([]byte, 1+rnd.IntN(64<<10)>>rnd.IntN(17))
	every := 1 + rnd.IntN(1<<rnd.IntN(17))
	for i := range chunk {
		chunk[i] = byte('a' + rnd.IntN(26))
		if rnd.IntN(every) == 0 {
			chunk[i] = '\n'
		}
	}
	return chunk
}

func TestWriterLimitHoldsAfterReopen(t *testing.T) {
	dir := t.TempDir()
	opts := Options{MaxSize: 2000, MaxFiles: 2}
	var all string
	for i := range 50 {
		w := open(t, dir, opts)
		line := fmt.Sprintf("%0300d\n", i)
		w.Append(Stdout, []byte(line))
		all += line
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		checkLimits(t, dir, opts)
	}
	if got := onDisk(t, dir)[Stdout]; !strings.HasSuffix(all, got) || len(got) < 2000 {
		t.Errorf("kept %d bytes, not the last ones or too few", len(got))
	}
}

func TestWriterLowersFileCountOnOpen(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{MaxSize: 1024, MaxFiles: 9})
	for range 9 {
		w.Append(Stdout, bytes.Repeat([]byte("x"), 900))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, Options{MaxSize: 1024, MaxFiles: 2})
	checkLimits(t, dir, Options{MaxSize: 1024, MaxFiles: 2})
}

func TestOpenRepairsTornRecord(t *testing.T) {
	const whole = "2026-11-21T03:16:40.000000000Z stdout F whole\n"
	const next = "2026-11-21T03:16:41.000000000Z stderr "
	for _, test := range []struct{ name, tail, out, err string }{
		{"nothing torn", "", "whole\n", ""},
		{"in the time", "2026-11", "whole\n", ""},
		{"in the tag", next, "whole\n", ""},
		{"before the text", next + "F ", "whole\n", ""},
		{"in the text of a full record", next + "F text", "whole\n", "text"},
		{"in the text of a partial record", next + "P te xt", "whole\n", "te xt"},
		{"zeros of a lost block", strings.Repeat("\x00", 4096), "whole\n", ""},
		{"a foreign header", "2026-11-21T03:16:41Z stderr F some text of some length", "whole\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(fileName(dir, 7), []byte(whole+test.tail), 0o640); err != nil {
				t.Fatal(err)
			}
			w := open(t, dir, Options{})
			w.Append(Stdout, []byte("next\n"))
			want := map[Stream]string{Stdout: test.out + "next\n"}
			if test.name[:2] == "in" && test.err != "" || strings.HasSuffix(test.tail, "F ") {
				want[Stderr] = test.err
			}
			if diff := cmp.Diff(want, onDisk(t, dir)); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("second Open: error %v, want one that names %s", err, dir)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, Options{})
}

func TestWriterAcceptsBothStreamsAtOnce(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{MaxSize: 100_000, MaxFiles: 1000})
	want := map[Stream]string{}
	var wg sync.WaitGroup
	for _, s := range []Stream{Stdout, Stderr} {
		rnd := rand.New(rand.NewPCG(2, uint64(s)))
		var chunks [][]byte
		for range 100 {
			chunks = append(chunks, randomChunk(rnd))
		}
		want[s] = string(bytes.Join(chunks, nil))
		wg.Go(func() {
			for _, c := range chunks {
				w.Append(s, c)
			}
		})
	}
	wg.Wait()
	if got := onDisk(t, dir); got[Stdout] != want[Stdout] || got[Stderr] != want[Stderr] {
		t.Error("a stream differs from what was written")
	}
}

func TestCloseMayBeRepeatedAndAppendFollowIt(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{Logger: slog.New(slog.DiscardHandler)})
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.Append(Stdout, []byte("too late\n"))
	if diff := cmp.Diff(map[Stream]string{}, onDisk(t, dir)); diff != "" {
		t.Error(diff)
	}
}
