package identity

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// imageWith returns a root with one file in /etc.
func imageWith(t *testing.T, name, text string) (root *os.File, path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "etc", name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, path
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A line of an image's file, however long, takes a few KiB of the supervisor's memory.
func TestLongLinesTakeLittleMemory(t *testing.T) {
	const most = 64 << 10
	for name, line := range map[string]string{
		"colons": strings.Repeat(":", 8<<20), "one name": strings.Repeat("b", 8<<20),
		"one number": "bob:x:" + strings.Repeat("0", 8<<20), "short lines": strings.Repeat("::::\n", 1<<20),
	} {
		root, _ := imageWith(t, "passwd", line+"\nbob:x:1234\n")
		var uid uint32
		var err error
		got := allocated(func() { uid, _, err = Resolve(root, "bob", "7", false, nil) })
		if uid != 1234 || err != nil || got > most {
			t.Errorf("%s: user %d, %v, %d bytes of memory, want user 1234 and at most %d bytes", name, uid, err, got, most)
		}
	}
}

// A group may have more members than a line's buffer holds; a number that the buffer cuts is not one.
func TestLongLinesOfGroupsAreRead(t *testing.T) {
	long := strings.Repeat("member,", maxLine)
	for text, want := range map[string]uint32{
		"wheel:x:12:" + long + "\n":                                      12,
		"wheel:x:12:" + long:                                             12,
		"other:x:9:" + long + "\nwheel:x:12\n":                           12,
		"wheel:" + strings.Repeat("x", maxLine-10) + ":12\n":             12, // its first three fields fill the buffer
		"wheel:" + strings.Repeat("x", maxLine-8) + ":12\nwheel:x:5\n":   5,
		"wheel:" + strings.Repeat("x", maxLine-8) + ":123:\nwheel:x:5\n": 5,
	} {
		root, _ := imageWith(t, "group", text)
		if _, gid, err := Resolve(root, "0", "wheel", false, nil); gid != want || err != nil {
			t.Errorf("%.40q: group %d, %v, want %d", text, gid, err, want)
		}
	}
}

// What is behind the most that is read counts for nothing, a number that it cuts included.
func TestNothingBeyondTheLimitCounts(t *testing.T) {
	filler := strings.Repeat("\n", maxDatabase-len("bob:x:12"))
	if id, found := scan(strings.NewReader(filler+"bob:x:1234\n"), "bob"); found {
		t.Errorf("user %d from a line that is cut", id)
	}
	counted := &counter{Reader: io.MultiReader(strings.NewReader(filler), bytes.NewReader(make([]byte, 1<<20)))}
	if _, found := scan(counted, "bob"); found || counted.n > maxDatabase {
		t.Errorf("%d bytes read, want at most %d", counted.n, maxDatabase)
	}
}

type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// A lease on the file makes a plain open wait for /proc/sys/fs/lease-break-time, 45 s.
func TestALeaseDoesNotDelayTheOpen(t *testing.T) {
	signal.Ignore(unix.SIGIO) // by which the kernel asks for the lease back
	defer signal.Reset(unix.SIGIO)
	root, path := imageWith(t, "passwd", "bob:x:1234\n")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, _, err = Resolve(root, "bob", "7", false, nil)
	if took := time.Since(start); !errors.Is(err, unix.EWOULDBLOCK) || took > 20*time.Second {
		t.Errorf("%v after %v, want EWOULDBLOCK at once", err, took)
	}
}

func TestOpenRegularRefusesOtherFiles(t *testing.T) {
	everything, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer everything.Close()
	root, path := imageWith(t, "file", "")
	if err := unix.Mkfifo(path+"-fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for path, root := range map[string]*os.File{
		"etc/file-fifo": root, "etc": root,
		"proc/version": everything, "proc/kmsg": everything, "sys/kernel/uevent_seqnum": everything, "dev/null": everything,
	} {
		f, err := OpenRegular(root, path)
		if !errors.Is(err, errNotRegular) {
			t.Errorf("open %s: %v, want %v", path, err, errNotRegular)
		}
		f.Close() // nil, unless the test has failed
	}
	f, err := OpenRegular(root, "etc/file")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
