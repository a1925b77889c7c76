package callins

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// opened opens a file for a caller.
func opened(t *testing.T, path string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func pipeOf(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// sockets returns a connected pair, of which the first is non-blocking.
func sockets(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// inodes is a script that writes to path which files the shell has as stdin, stdout and stderr.
func inodes(path string) string {
	return "exec 9>" + path + "; for n in 0 1 2; do stat -L -c %d:%i /proc/$$/fd/$n >&9; done"
}

func inodeOf(t *testing.T, f *os.File) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// callerStreams are the kinds of streams, in and out, that a caller may have; file is a file with the line "words".
func callerStreams(t *testing.T, file string) map[string][2]*os.File {
	t.Helper()
	in, out := pipeOf(t)
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = master.Close(), tty.Close() })
	socket, other := sockets(t)
	for _, f := range []*os.File{out, master, other} {
		if _, err := f.WriteString("words\n"); err != nil {
			t.Fatal(err)
		}
	}
	return map[string][2]*os.File{
		"pipe":            {in, out},
		"file":            {opened(t, file, os.O_RDWR), opened(t, file, os.O_RDWR)},
		"file for append": {opened(t, file, os.O_RDONLY), opened(t, file, os.O_WRONLY|os.O_APPEND)},
		"folder":          {opened(t, filepath.Dir(file), os.O_RDONLY), out},
		"device":          {opened(t, "/dev/zero", os.O_RDONLY), opened(t, "/dev/zero", os.O_WRONLY)},
		"socket":          {socket, socket},
		"terminal":        {tty, tty},
	}
}

// wordsFile makes a file with the line "words".
func wordsFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A process could open again, with other access, what it holds: the script that the caller's shell is reading, the
// caller's log, what is typed later.
func TestNoStreamOfTheCallerIsTheCommands(t *testing.T) {
	p := newPod(t, sleeper)
	for name, stdio := range callerStreams(t, wordsFile(t)) {
		t.Run(name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "list")
			cmd := p.caller("run", shell(t, inodes(list)+"; exit 4"), "app")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[1]
			if got := exitCode(t, cmd.Run()); got != 4 {
				t.Errorf("exit code %d, want 4", got)
			}
			mustNotHave(t, list, stdio[:]...)
		})
	}
}

// mustNotHave checks a list of inodes.
func mustNotHave(t *testing.T, list string, callers ...*os.File) {
	t.Helper()
	got, err := os.ReadFile(list)
	if err != nil || bytes.Count(got, []byte(":")) != 3 {
		t.Fatalf("the process has %q, %v", got, err)
	}
	for _, f := range callers {
		if strings.Contains(string(got), inodeOf(t, f)+"\n") {
			t.Errorf("the process has %s of the caller: %s", f.Name(), got)
		}
	}
}

func TestNoStreamOfAnAttachedCallerIsTheApps(t *testing.T) {
	for name, stdio := range callerStreams(t, wordsFile(t)) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			list, attached := filepath.Join(dir, "list"), filepath.Join(dir, "attached")
			script := fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; %s; exit 4", attached, inodes(list))
			p := newPod(t, testApp{Name: "app", OpenStdin: true, Args: []string{"/bin/sh", "-c", script}})
			cmd := p.caller("attach", "", "app")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[1]
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Those of its output: the one of its stdin is closed once a file is at its end.
			surroundings.Eventually(t, "the call-in has the app's pipes", func() bool { return pipesOf(cmd.Process.Pid, stdio[:]...) >= 2 })
			if err := os.WriteFile(attached, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := exitCode(t, cmd.Wait()); got != 4 {
				t.Errorf("exit code %d, want 4", got)
			}
			mustNotHave(t, list, stdio[:]...)
		})
	}
}

// pipesOf returns how many descriptors a process has of pipes other than the callers' files.
func pipesOf(pid int, callers ...*os.File) (n int) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		target, _ := os.Readlink(link)
		isCallers := func(f *os.File) bool {
			own, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			return err == nil && own == target
		}
		if strings.HasPrefix(target, "pipe:") && !slices.ContainsFunc(callers, isCallers) {
			n++
		}
	}
	return n
}

// What a caller of attach has in a file is typed to the app, and the app's answer is written to one.
func TestAttachCopiesBetweenFiles(t *testing.T) {
	dir := t.TempDir()
	input := filepath.Join(dir, "in")
	p := newPod(t, testApp{Name: "app", OpenStdin: true, Args: []string{"/bin/sh", "-c", "read x; echo $x; exit 4"}})
	if err := os.WriteFile(input, []byte("words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, out := opened(t, input, os.O_RDWR), opened(t, filepath.Join(dir, "out"), os.O_RDWR|os.O_CREATE|os.O_APPEND)
	cmd := p.caller("attach", "", "app")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	code := exitCode(t, cmd.Run())
	if got, err := os.ReadFile(out.Name()); err != nil || string(got) != "words\n" || code != 4 {
		t.Errorf("exit code %d, %q, %v", code, got, err)
	}
}

// An attachment whose reader has gone ends as if SIGPIPE had ended it.
func TestAnAttachmentEndsWhenItsReaderHasGone(t *testing.T) {
	p := newPod(t, answering(""))
	a := attachTo(t, p, "app")
	a.ask(t, "one")
	if err := a.stdout.(io.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, a.cmd.Wait()); code != 128+int(unix.SIGPIPE) {
		t.Errorf("exit code %d, want SIGPIPE's", code)
	}
}

// Kurma's daemon passes one pipe as stdout and stderr.
func TestOnePipeForBothKeepsTheOrder(t *testing.T) {
	const lines = 10000
	p := newPod(t, sleeper)
	read, write := pipeOf(t)
	cmd := p.caller("run", shell(t, fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo out $i; echo err $i >&2; i=$((i+1)); done", lines)), "app")
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	got, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "out %d\nerr %[1]d\n", i)
	}
	if code := exitCode(t, cmd.Wait()); code != 0 || string(got) != want.String() {
		t.Errorf("exit code %d, %d bytes, want %d in their order", code, len(got), want.Len())
	}
}

// The command learns that its reader has gone before it writes.
func TestTheCommandIsSignalledWhenItsReaderHasGone(t *testing.T) {
	p := newPod(t, sleeper)
	read, write := pipeOf(t)
	cmd := p.caller("run", shell(t, "echo ready; read go; echo out; echo more >&2"), "app")
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = write, &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	readUntil(t, read, "ready\n")
	open := func() int {
		fds, err := os.ReadDir("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	before := open()
	read.Close()
	eventually(t, "the call-in closes the command's pipe", func() bool { return open() < before })
	io.WriteString(stdin, "go\n")
	if code := exitCode(t, cmd.Wait()); code != 128+int(unix.SIGPIPE) || stderr.Len() > 0 {
		t.Errorf("exit code %d, %q, want SIGPIPE's and nothing", code, &stderr)
	}
}

func TestStreamsOfEveryKindCarryAllBytes(t *testing.T) {
	const size = 1 << 20
	p := newPod(t, sleeper)
	text := bytes.Repeat(block[:16], size/16)
	dir := t.TempDir()
	input := filepath.Join(dir, "in")
	if err := os.WriteFile(input, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flag := range map[string]int{"file": 0, "file for append": os.O_APPEND} {
		t.Run(name, func(t *testing.T) {
			out := opened(t, filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|flag)
			out.WriteString("before ")
			cmd := p.caller("run", shell(t, "cat; exit 3"), "app")
			cmd.Stdin, cmd.Stdout = opened(t, input, os.O_RDONLY), out
			code := exitCode(t, cmd.Run())
			got, err := os.ReadFile(out.Name())
			if err != nil || code != 3 || string(got) != "before "+string(text) {
				t.Errorf("exit code %d, %d bytes, %v, want %d", code, len(got), err, size)
			}
		})
	}
	t.Run("non-blocking socket", func(t *testing.T) {
		ours, theirs := sockets(t)
		cmd := p.caller("run", shell(t, "cat; exit 3"), "app")
		cmd.Stdin, cmd.Stdout = ours, ours
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ours.Close()
		written := make(chan error, 1)
		go func() {
			_, err := theirs.Write(text)
			written <- errors.Join(err, unix.Shutdown(int(theirs.Fd()), unix.SHUT_WR))
		}()
		got, err := io.ReadAll(theirs)
		err = errors.Join(err, <-written)
		if code := exitCode(t, cmd.Wait()); err != nil || code != 3 || !bytes.Equal(got, text) {
			t.Errorf("exit code %d, %d bytes, %v, want %d", code, len(got), err, size)
		}
	})
}

// What cannot be read has ended.
func TestAnUnreadableStdinHasEnded(t *testing.T) {
	p := newPod(t, sleeper)
	_, write := pipeOf(t)
	for name, stdin := range map[string]*os.File{
		"folder": opened(t, "/", os.O_RDONLY), "open for writing": write,
		"null device": null(t), "path": opened(t, "/etc/passwd", unix.O_PATH),
	} {
		cmd := p.caller("run", shell(t, "cat; echo end"), "app")
		cmd.Stdin = stdin
		if diff := cmp.Diff(result{Stdout: "end\n"}, finish(t, cmd)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An error of the caller's file is the call's.
func TestErrorsOfTheCallersFilesAreReported(t *testing.T) {
	p := newPod(t, sleeper)
	memory := opened(t, "/proc/self/mem", os.O_RDONLY) // there is nothing at 0
	cmd := p.caller("run", shell(t, "cat; echo end"), "app")
	cmd.Stdin = memory
	want := result{Stdout: "end\n", Stderr: "run: read stdin: read: input/output error\n", Code: 125}
	if diff := cmp.Diff(want, finish(t, cmd)); diff != "" {
		t.Errorf("stdin (-want +got):\n%s", diff)
	}
	cmd = p.caller("run", shell(t, "yes"), "app")
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = opened(t, "/dev/full", os.O_WRONLY), &stderr
	if code := exitCode(t, cmd.Run()); code != 125 || stderr.String() != "run: write output: no space left on device\n" {
		t.Errorf("stdout: exit code %d, %q", code, &stderr)
	}
}

// A command that does not read takes as much from its caller's stdin as two pipes and two buffers hold, at most.
func TestMostOfAnUnreadStdinStaysTheCallers(t *testing.T) {
	const size, most = 1 << 20, 256 << 10
	p := newPod(t, sleeper)
	read, write := pipeOf(t)
	if _, err := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, size); err != nil {
		t.Fatal(err)
	}
	if _, err := write.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	file := opened(t, filepath.Join(t.TempDir(), "in"), os.O_RDWR|os.O_CREATE)
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, stdin := range []*os.File{read, file} {
		cmd := p.caller("run", shell(t, "head -c 1 >/dev/null; exit 2"), "app")
		cmd.Stdin = stdin
		if code := exitCode(t, cmd.Run()); code != 2 {
			t.Errorf("exit code %d, want 2", code)
		}
	}
	left, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCINQ)
	if err != nil || left < size-most || left == size {
		t.Errorf("%d bytes are left of %d in the pipe, %v", left, size, err)
	}
	if offset, err := file.Seek(0, io.SeekCurrent); err != nil || offset > most || offset == 0 {
		t.Errorf("%d bytes of the file are read, %v", offset, err)
	}
	if now, err := unix.FcntlInt(read.Fd(), unix.F_GETPIPE_SZ, 0); err != nil || now != size {
		t.Errorf("the caller's pipe has room for %d bytes, %v, and had for %d", now, err, size)
	}
}
