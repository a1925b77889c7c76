package crilog

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// smallDisk mounts a tmpfs of size bytes in a mount namespace of the test's own thread.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatalf("make a mount namespace (needs root): %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk leaves no byte free and returns the file that does.
func fillDisk(t *testing.T, disk string) string {
	t.Helper()
	name := filepath.Join(disk, "fill")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	return name
}

// clock steps far enough for a retry each time it is asked.
func clock() func() time.Time {
	now := time.Unix(0, 0)
	return func() time.Time { now = now.Add(retryAfter); return now }
}

func TestAFullDiskIsLoggedOnceAndTheLogGoesOn(t *testing.T) {
	surroundings.Root(t)
	disk := smallDisk(t, 1<<20)
	dir := filepath.Join(disk, "app")
	var messages bytes.Buffer
	w := open(t, dir, Options{MaxSize: 16 << 20, Logger: slog.New(slog.NewTextHandler(&messages, nil))})
	w.now = clock()
	w.Append(Stdout, []byte("before\n"))
	rnd := rand.New(rand.NewPCG(5, 5))
	written := 0
	for range 2000 { // lines of all lengths: some would fit into the last block's rest
		line := []byte(strings.Repeat("x", rnd.IntN(3000)) + "\n")
		w.Append(Stdout, line)
		written += len(line)
	}
	if n := strings.Count(messages.String(), "\n"); n != 1 || !strings.Contains(messages.String(), "no space left") {
		t.Errorf("logged %d lines, want one about the space:\n%s", n, messages.String())
	}
	kept := len(onDisk(t, dir)[Stdout]) - len("before\n")
	if err := w.rotate(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(fileName(dir, 1)); err != nil {
		t.Fatal(err)
	}
	w.Append(Stdout, []byte("after\n"))
	got := onDisk(t, dir)[Stdout]
	if !strings.HasSuffix(got, "after\n") {
		t.Errorf("log ends in %.40q, want the line written when there was room", got[max(0, len(got)-40):])
	}
	if want := fmt.Sprintf("lostBytes=%d", written-kept); !strings.Contains(messages.String(), want) || strings.Count(messages.String(), "\n") != 2 {
		t.Errorf("want one more line with %s:\n%s", want, messages.String())
	}
}

func TestTheLogGoesOnAfterOthersFilledTheDisk(t *testing.T) {
	surroundings.Root(t)
	disk := smallDisk(t, 1<<20)
	dir := filepath.Join(disk, "app")
	var messages bytes.Buffer
	w := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&messages, nil))})
	w.now = clock()
	fill := fillDisk(t, disk)
	long := bytes.Repeat([]byte("y"), 5000)
	w.Append(Stdout, []byte("a line that lo"))
	w.Append(Stderr, []byte("err\n"))
	w.Append(Stdout, long)
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.Append(Stdout, []byte("whole\n"))
	got := onDisk(t, dir)[Stdout]
	if got != "whole\n" && got != "a line that lo\nwhole\n" {
		t.Errorf("log is %q: the lost line must not take in the next", got)
	}
	if n := strings.Count(messages.String(), "\n"); n != 2 {
		t.Errorf("logged %d lines, want one for each change:\n%s", n, messages.String())
	}
}

func TestLineThatLostItsEndIsEnded(t *testing.T) {
	surroundings.Root(t)
	disk := smallDisk(t, 1<<20)
	dir := filepath.Join(disk, "app")
	w := open(t, dir, Options{Logger: slog.New(slog.DiscardHandler)})
	w.now = clock()
	w.Append(Stdout, []byte("lost its e"))
	w.Append(Stderr, []byte("did not"))
	fill := fillDisk(t, disk)
	w.Append(Stdout, append(bytes.Repeat([]byte("y"), 50_000), '\n'))
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.Append(Stdout, []byte("whole\n"))
	w.Append(Stderr, []byte(" lose\n"))
	got := onDisk(t, dir)
	if got[Stdout] != "lost its e\nwhole\n" || got[Stderr] != "did not lose\n" {
		t.Errorf("log is %q", got)
	}
}

func TestALogOpensOnAFullDisk(t *testing.T) {
	surroundings.Root(t)
	disk := smallDisk(t, 1<<20)
	dir := filepath.Join(disk, "app")
	if err := os.WriteFile(filepath.Join(disk, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fill := fillDisk(t, disk)
	w := open(t, dir, Options{Logger: slog.New(slog.DiscardHandler)})
	w.now = clock()
	w.Append(Stdout, []byte("lost\n"))
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.Append(Stdout, []byte("kept\n"))
	if got := onDisk(t, dir)[Stdout]; got != "kept\n" {
		t.Errorf("log is %q", got)
	}
}

func TestTheLogGoesOnAfterAnyWriteError(t *testing.T) {
	dir := t.TempDir()
	var messages bytes.Buffer
	w := open(t, dir, Options{MaxFiles: 3, Logger: slog.New(slog.NewTextHandler(&messages, nil))})
	w.now = clock()
	w.Append(Stdout, []byte("a\n"))
	broken, err := os.Open(fileName(dir, 1)) // not for writing
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	w.file = broken
	w.Append(Stdout, []byte("b\n"))
	w.unusable = true // as after EIO
	w.Append(Stdout, []byte("c\n"))
	if got := onDisk(t, dir)[Stdout]; got != "a\nc\n" {
		t.Errorf("log is %q", got)
	}
	if n := strings.Count(messages.String(), "\n"); n != 2 {
		t.Errorf("logged %d lines, want 2:\n%s", n, messages.String())
	}
}

// The writer of a single file does not go on in a file that it has removed, where the disk has no room for another one.
func TestTheOnlyFileIsReplacedOnADiskWithoutInodes(t *testing.T) {
	surroundings.Root(t)
	disk := smallDisk(t, 1<<20)
	dir := filepath.Join(disk, "app")
	w := open(t, dir, Options{MaxSize: 1024, MaxFiles: 1, Logger: slog.New(slog.DiscardHandler)})
	w.now = clock()
	w.Append(Stdout, []byte(strings.Repeat("a", 900)+"\n"))
	// The two folders, the lock and the file.
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "nr_inodes=4"); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("b", 300) + "\n"
	w.Append(Stdout, []byte(want))
	if got := onDisk(t, dir)[Stdout]; got != want {
		t.Errorf("the log has %q", got)
	}
}

func TestAppendSurvivesTheRemovalOfItsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	w := open(t, dir, Options{MaxSize: 1024, Logger: slog.New(slog.DiscardHandler)})
	w.now = clock()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		w.Append(Stdout, bytes.Repeat([]byte("x"), 500))
	}
}
