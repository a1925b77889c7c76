package crilog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asOthersRead returns the lines of records of stdout as every reader of the CRI's format puts them together.
func asOthersRead(t *testing.T, records []byte) (lines []string) {
	t.Helper()
	form := regexp.MustCompile(`^(\S+) stdout (F|P) (.*)$`)
	line := ""
	for record := range strings.Lines(string(records)) {
		parts := form.FindStringSubmatch(strings.TrimSuffix(record, "\n"))
		if parts == nil {
			t.Fatalf("record %q", record)
		}
		if line += parts[3]; parts[2] == "F" {
			lines, line = append(lines, line), ""
		}
	}
	if line != "" {
		t.Errorf("a line without an end: %q", line)
	}
	return lines
}

// readBack returns a log's bytes as the app wrote them, and its last n lines.
func readBack(t *testing.T, dir string, n int) (all string, tail []string) {
	t.Helper()
	var out bytes.Buffer
	if err := Read(t.Context(), dir, ReadOptions{Tail: -1}, func(e Entry) error {
		out.Write(e.Text)
		if !e.Partial && !e.Ended {
			out.WriteByte('\n')
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	line := ""
	if err := Read(t.Context(), dir, ReadOptions{Tail: n}, func(e Entry) error {
		if line += string(e.Text); !e.Partial {
			tail, line = append(tail, line), ""
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out.String(), tail
}

// The last line of a process that has ended without a newline is a line of its own for all readers of the format, also
// if the writer was killed; the log has the same bytes as before.
func TestAnUnfinishedLineEndsWithItsProcess(t *testing.T) {
	for name, end := range map[string]func(w *Writer, dir string) *Writer{
		"ended": func(w *Writer, _ string) *Writer {
			w.EndLines()
			w.EndLines() // once is enough
			return w
		},
		"opened again": func(w *Writer, dir string) *Writer {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, dir, Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			w := open(t, dir, Options{})
			w.Append(Stdout, []byte("one\ntwo"))
			w.Append(Stdout, []byte(" more"))
			w = end(w, dir)
			w.Append(Stdout, []byte("three\n\n"))
			w.EndLines() // there is none
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			records, err := os.ReadFile(fileName(dir, 1))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"one", "two more", "three", ""}, asOthersRead(t, records)); diff != "" {
				t.Error(diff)
			}
			all, tail := readBack(t, dir, 3)
			if all != "one\ntwo morethree\n\n" {
				t.Errorf("the bytes of the log are %q", all)
			}
			if diff := cmp.Diff([]string{"two more", "three", ""}, tail); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The record that ends a line is in the file's limit.
func TestTheEndOfALineIsInTheLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	w := open(t, dir, Options{MaxSize: minMaxSize})
	w.Append(Stdout, bytes.Repeat([]byte("x"), minMaxSize-headerLen-1))
	w.EndLines()
	w.Append(Stdout, []byte("y"))
	var records []byte
	for number := range uint64(2) {
		data, err := os.ReadFile(fileName(dir, number+1))
		if err != nil || len(data) > minMaxSize {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		records = append(records, data...)
	}
	w.EndLines()
	data, err := os.ReadFile(fileName(dir, 2))
	if err != nil {
		t.Fatal(err)
	}
	if got := asOthersRead(t, append(records[:minMaxSize:minMaxSize], data...)); len(got) != 2 || got[1] != "y" {
		t.Errorf("lines %q", got)
	}
}

// A log in one file of another program ends its lines as well.
func TestAFilesUnfinishedLineEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := OpenFile(path, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	f.Append(Stdout, []byte("one"))
	f.EndLines()
	f.EndLines()
	f.Append(Stdout, []byte("two\n"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	records, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one", "two"}, asOthersRead(t, records)); diff != "" {
		t.Error(diff)
	}
}
