package crilog

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// texts returns what the file's records say after their times.
func texts(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		all = append(all, strings.TrimSuffix(line[stampLen+1:], "\n"))
	}
	return all
}

func TestFileContinuesInTheNewFileAtItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := OpenFile(path, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	f.Append(Stdout, []byte("one\ntwo"))
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	f.Append(Stderr, []byte("between\n"))
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	f.Append(Stdout, []byte(strings.Repeat("x", maxText)+"yy\n"))
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	f.Append(Stdout, []byte("after its end\n"))
	if got := strings.Join(texts(t, path+".old"), "|"); got != "stdout F one|stdout P two|stderr F between" {
		t.Errorf("old file: %q", got)
	}
	got := texts(t, path)
	if len(got) != 2 || got[0] != "stdout P "+strings.Repeat("x", maxText) || got[1] != "stdout F yy" {
		t.Errorf("new file has %d records", len(got))
	}
}

// Whoever may write the folder has no other file written by a link, nobody waits for the reader of a pipe, and no device
// is opened.
func TestFileIsARegularFile(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	path, target := filepath.Join(dir, "0.log"), filepath.Join(dir, "target")
	discard := slog.New(slog.NewTextHandler(io.Discard, nil))
	pipe := func(path string) error { return unix.Mkfifo(path, 0o600) }
	read := func(path string) error {
		if err := pipe(path); err != nil {
			return err
		}
		reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		t.Cleanup(func() { _ = reader.Close() })
		return err
	}
	for name, replace := range map[string]func(string) error{
		"link":               func(path string) error { return os.Symlink(target, path) },
		"pipe":               pipe,
		"pipe with a reader": read,
		"device":             func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	} {
		f, err := OpenFile(path, discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(path, path+".old"), replace(path)); err != nil {
			t.Fatal(err)
		}
		f.Append(Stdout, []byte("one\n"))
		if got := strings.Join(texts(t, path+".old"), "|"); got != "stdout F one" {
			t.Errorf("%s: %q", name, got)
		}
		if other, err := OpenFile(path, discard); err == nil {
			t.Errorf("%s is opened", name)
			_ = other.Close()
		}
		if err := errors.Join(f.Close(), os.Remove(path), os.Remove(path+".old")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the link's target is made")
	}
}

func TestFileThatCannotBeWrittenIsLoggedOnce(t *testing.T) {
	surroundings.Root(t)
	dir := smallDisk(t, 64<<10)
	fillDisk(t, dir)
	var logged strings.Builder
	f, err := OpenFile(filepath.Join(dir, "0.log"), slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Append(Stdout, []byte("lost\n"))
	f.Append(Stdout, []byte("lost\n"))
	if n := strings.Count(logged.String(), "output is lost"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &logged)
	}
}

// A line that has lost its rest is ended, and the bytes that were lost are counted.
func TestFileEndsALineThatLostItsRest(t *testing.T) {
	surroundings.Root(t)
	dir := smallDisk(t, 64<<10)
	var logged strings.Builder
	path := filepath.Join(dir, "0.log")
	f, err := OpenFile(path, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	f.Append(Stdout, []byte("abc"))
	f.Append(Stderr, []byte("whole\n"))
	f.Append(Stdout, bytes.Repeat([]byte("x"), 100<<10))
	f.Append(Stdout, []byte("ghi\n"))
	f.Append(Stdout, []byte("more\n"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(texts(t, path), "|"); got != "stdout P abc|stderr F whole|stdout F |stdout F ghi|stdout F more" {
		t.Errorf("%q", got)
	}
	if !strings.Contains(logged.String(), "lost=102400\n") {
		t.Errorf("logged %s", &logged)
	}
}
