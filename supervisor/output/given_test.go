package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// given opens a file of the daemon.
func given(t *testing.T, path string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flag|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A process could open a regular file or a device again, with other access, so it gets a pipe.
func TestOnlyPipesAndSocketsAreLentToAProcess(t *testing.T) {
	dir := t.TempDir()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, other := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	defer socket.Close()
	defer other.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	folder, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := given(t, filepath.Join(dir, "fifo"), os.O_RDWR)
	file, null := given(t, filepath.Join(dir, "file"), os.O_RDWR|os.O_APPEND), given(t, os.DevNull, os.O_RDWR)
	for _, test := range []struct {
		name              string
		stdin, out        *os.File
		wantIn, wantOut   *os.File
		pipesIn, pipesOut bool
	}{
		{name: "pipe", stdin: read, out: write, wantIn: read, wantOut: write},
		{name: "socket", stdin: socket, out: socket, wantIn: socket, wantOut: socket},
		{name: "null device", stdin: null, out: null},
		{name: "file", stdin: file, out: file, pipesIn: true, pipesOut: true},
		{name: "device", stdin: given(t, "/dev/zero", os.O_RDWR), out: given(t, "/dev/full", os.O_RDWR), pipesIn: true, pipesOut: true},
		{name: "pipe with a name", stdin: fifo, out: fifo, pipesIn: true, pipesOut: true},
		{name: "folder", stdin: folder, out: write, wantOut: write, pipesIn: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t, newCollector(t), Options{Stdin: test.stdin, OutFile: test.out})
			defer s.Finish()
			if test.pipesIn {
				test.wantIn = newFile(t, s.Stdin, test.stdin)
			}
			if test.pipesOut {
				test.wantOut = newFile(t, s.Stdout, test.out)
			}
			if s.Stdin != test.wantIn || s.Stdout != test.wantOut {
				t.Errorf("stdin %v, stdout %v, want %v and %v", s.Stdin, s.Stdout, test.wantIn, test.wantOut)
			}
		})
	}
}

// newFile returns f, which must be a pipe, and not the file given.
func newFile(t *testing.T, f, given *os.File) *os.File {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if sameFile(f, given) || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("%s is %v", given.Name(), info.Mode())
	}
	return f
}

func TestGivenFilesAreCopied(t *testing.T) {
	dir := t.TempDir()
	in := given(t, filepath.Join(dir, "in"), os.O_RDWR)
	write(t, in, "skipped words")
	if _, err := in.Seek(int64(len("skipped ")), 0); err != nil {
		t.Fatal(err)
	}
	out := given(t, filepath.Join(dir, "out"), os.O_WRONLY|os.O_APPEND)
	var logged log
	s := open(t, newCollector(t), Options{Stdin: in, OutFile: out, ErrFile: out, Stdout: &logged, Stderr: &logged})
	stdin, stdout, stderr := held(t, s.Stdin), held(t, s.Stdout), held(t, s.Stderr)
	s.Started()
	if got := readAll(t, stdin); got != "words" {
		t.Errorf("stdin has %q", got)
	}
	var want strings.Builder
	for i := range 1000 {
		write(t, stdout, fmt.Sprintln("out", i))
		write(t, stderr, fmt.Sprintln("err", i))
		fmt.Fprintf(&want, "out %d\nerr %[1]d\n", i)
	}
	if err := errors.Join(stdin.Close(), stdout.Close(), stderr.Close()); err != nil {
		t.Fatal(err)
	}
	s.Finish()
	got, err := os.ReadFile(out.Name())
	if err != nil || string(got) != want.String() || logged.text.Len() > 0 {
		t.Errorf("%d bytes, %v, want %d in their order; log %q", len(got), err, want.Len(), &logged.text)
	}
}

// A run that has ended reads no more of a terminal: its next line is the next run's.
func TestATerminalFeedsOneRunAfterTheOther(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer terminal.Close()
	c := newCollector(t)
	for i := range 3 {
		s := open(t, c, Options{Stdin: terminal})
		stdin := held(t, s.Stdin)
		s.Started()
		line := fmt.Sprintln("line", i)
		write(t, master, line)
		got := make([]byte, len(line))
		if _, err := io.ReadFull(stdin, got); err != nil || string(got) != line {
			t.Errorf("run %d has %q, %v", i, got, err)
		}
		s.Finish()
		if rest := readAll(t, stdin); rest != "" {
			t.Errorf("after its end run %d has %q", i, rest)
		}
		if err := stdin.Close(); err != nil {
			t.Error(err)
		}
	}
}
