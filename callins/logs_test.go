package callins

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/crilog"
)

const (
	log1 = "2026-11-21T03:00:01.000000000Z stdout F one\n" +
		"2026-11-21T03:00:01.500000000Z stderr P oo\n" +
		"2026-11-21T03:00:02.000000000Z stderr F ps\n"
	log2 = "2026-11-21T03:00:03.000000000Z stdout P tw\n" +
		"2026-11-21T03:00:04.000000000Z stdout P o"
)

// logRoot is a log folder with the app "db", whose log has two files.
func logRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	writeLog(t, root, "db/0000000001.log", log1)
	writeLog(t, root, "db/0000000002.log", log2)
	writeLog(t, root, "afile", "")
	return root
}

func writeLog(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestLogsPrintsTheChosenLines(t *testing.T) {
	for _, test := range []struct{ name, args, out, err string }{
		{"everything, byte for byte", "db", "one\ntwo", "oops\n"},
		{"one dash will do", "-tail 1 db", "two", ""},
		{"tail", "--tail 2 db", "two", "oops\n"},
		{"tail with equals sign", "--tail=0 db", "", ""},
		{"stream stdout", "--stream stdout db", "one\ntwo", ""},
		{"stream stderr", "--stream stderr db", "", "oops\n"},
		{"since a time", "--since 2026-11-21T05:00:02+02:00 db", "two", ""},
		{"since a duration", "--since 1ns db", "", ""},
		{
			"timestamps", "--timestamps db", "2026-11-21T03:00:01.000000000Z one\n2026-11-21T03:00:03.000000000Z two",
			"2026-11-21T03:00:01.500000000Z oops\n",
		},
		{"all at once", "--timestamps --tail 5 --since 2026-11-21T03:00:03Z --stream stdout db", "2026-11-21T03:00:03.000000000Z two", ""},
		{"end of options", "-- db", "one\ntwo", "oops\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, err bytes.Buffer
			if err := Logs(t.Context(), logRoot(t), strings.Fields(test.args), &out, &err); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.out, test.err}, []string{out.String(), err.String()}); diff != "" {
				t.Errorf("output differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogsRefusesWrongArguments(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no app", nil, "0 app names"},
		{"two apps", []string{"db", "web"}, "2 app names"},
		{"unknown app", []string{"web"}, `"web"`},
		{"unknown app followed", []string{"--follow", "web"}, `"web"`},
		{"a file instead of a folder", []string{"afile"}, `"afile"`},
		{"below a file", []string{"afile/x"}, `"afile/x"`},
		{"empty name", []string{""}, `""`},
		{"the folder itself", []string{"."}, `"."`},
		{"the folder above", []string{".."}, `".."`},
		{"out of the folder", []string{"../etc"}, `"../etc"`},
		{"through the folder", []string{"db/../db"}, `"db/../db"`},
		{"absolute", []string{"/etc"}, `"/etc"`},
		{"NUL", []string{"d\x00b"}, `"d\x00b"`},
		{"unknown option", []string{"--all", "db"}, "-all"},
		{"tail of nothing", []string{"--tail", "", "db"}, "number of lines"},
		{"tail below zero", []string{"--tail", "-1", "db"}, "number of lines"},
		{"tail of words", []string{"--tail", "ten", "db"}, `"ten"`},
		{"since yesterday", []string{"--since", "yesterday", "db"}, `"yesterday"`},
		{"since the future", []string{"--since", "-1h", "db"}, `"-1h"`},
		{"stream stdin", []string{"--stream", "stdin", "db"}, `"stdin"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			err := Logs(t.Context(), logRoot(t), test.args, &out, &errOut)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %s", err, test.want)
			}
			if out.Len()+errOut.Len() > 0 {
				t.Errorf("wrote %q and %q", &out, &errOut)
			}
		})
	}
}

// A log that is made after logs --follow has started is followed until its writer closes it.
func TestLogsFollowsALogThatIsMadeLater(t *testing.T) {
	root := filepath.Join(t.TempDir(), "stager")
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Logs(limited(t), root, []string{"--follow", "db"}, out, io.Discard)
		out.Close()
	}()
	w, err := crilog.Open(filepath.Join(root, "db"), crilog.Options{MaxSize: 1024})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"prompt> ", strings.Repeat("x", 3000), "\n"} {
		w.Append(crilog.Stdout, []byte(text))
		got := make([]byte, len(text))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != text {
			t.Fatalf("followed %.20q, %v, want %.20q", got, err, text)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(in)
	if err := errors.Join(err, <-done); err != nil || len(rest) > 0 {
		t.Errorf("then %q, %v, want the end", rest, err)
	}
}

func TestLogsFollowEndsWithContext(t *testing.T) {
	root := t.TempDir()
	w, err := crilog.Open(filepath.Join(root, "db"), crilog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Append(crilog.Stdout, []byte("one\n"))
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	err = Logs(ctx, root, []string{"--follow", "db"}, writerFunc(func(b []byte) (int, error) {
		cancel()
		return len(b), nil
	}), io.Discard)
	if err != nil {
		t.Errorf("error %v, want none", err)
	}
}

func TestLogsEndsQuietlyWithoutAReader(t *testing.T) {
	gone := writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE })
	if err := Logs(t.Context(), logRoot(t), []string{"db"}, gone, io.Discard); err != nil {
		t.Errorf("error %v, want none", err)
	}
	full := writerFunc(func([]byte) (int, error) { return 0, syscall.ENOSPC })
	if err := Logs(t.Context(), logRoot(t), []string{"db"}, full, io.Discard); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want %v", err, syscall.ENOSPC)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func FuzzParseLogs(f *testing.F) {
	f.Add("--follow --tail 3 --since 1h --timestamps --stream stderr db")
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parseLogs(strings.Fields(line), time.Unix(0, 0))
		if err == nil && o.Read.Tail < -1 {
			t.Errorf("tail is %d", o.Read.Tail)
		}
	})
}
