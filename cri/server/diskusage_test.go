package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// Each file counts once, however many names it has and however deep it is.
func TestAMeasurementCountsEachFileOnce(t *testing.T) {
	dir := t.TempDir()
	fill := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(filepath.Join(dir, "file"))
	for i := range 10 {
		if err := os.Link(filepath.Join(dir, "file"), filepath.Join(dir, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	far := farFolder(t, filepath.Join(dir, "deep"), 1000)
	fill(fmt.Sprintf("/proc/self/fd/%d/file", far))
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got := measure(time.Now().Add(time.Minute), filepath.Join(dir, "missing"), dir)
	folders := uint64(1000)
	if got.inodes != 1+folders+1+1 || got.bytes < 2<<20 || got.bytes > 2<<20+1<<13*folders {
		t.Errorf("%+v", got)
	}
}

// What a walk leaves out counts as all that is used of the file system: an app may have made it so.
func TestWhatIsLeftOutOfAMeasurementCounts(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	const size = 8 << 20
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	layer := filepath.Join(dir, "layer")
	farFolder(t, layer, deepest+1)
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	if got := measure(soon(), layer); got.bytes >= size || got.inodes != deepest {
		t.Errorf("a layer that is walked as a whole: %+v", got)
	}
	for name, got := range map[string]diskUsage{
		"a layer that takes too long": measure(time.Now(), layer),
		"what is not a folder":        measure(soon(), filepath.Join(dir, "file")),
		"what cannot be opened":       measure(soon(), layer, filepath.Join(layer, strings.Repeat("x", 256))),
	} {
		if got.bytes < size || got.inodes < deepest+2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	farFolder(t, filepath.Join(layer, "deeper"), deepest+1)
	if got := measure(soon(), layer); got.bytes < size {
		t.Errorf("a layer that is too deep: %+v", got)
	}
}

// A name that is a folder's when it is looked at and a file's when it is opened is looked at again.
func TestANameThatChangesIsLookedAtAgain(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	w := &walk{until: time.Now().Add(time.Minute)}
	for name, want := range map[string]bool{"file": false, "link": false, ".": true, "missing": true} {
		if got := w.enter(unix.AT_FDCWD, filepath.Join(dir, name), 0); got != want || w.partial {
			t.Errorf("%s is taken for a folder: %v, and left out: %v", name, got, w.partial)
		}
	}
	w.look(unix.AT_FDCWD, filepath.Join(dir, strings.Repeat("x", 256)), 0)
	if !w.partial {
		t.Error("a file that cannot be read is taken for one that is gone")
	}
}

// farFolder makes folders in each other, whose path is longer than the kernel takes, and returns the last one's descriptor.
func farFolder(t *testing.T, top string, depth int) int {
	t.Helper()
	t.Cleanup(func() { _ = rmtree.Remove(top) })
	at := unix.AT_FDCWD
	for name := top; depth > 0; depth-- {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at != unix.AT_FDCWD {
			_ = unix.Close(at)
		}
		at, name = fd, "a-name-of-several-letters"
	}
	t.Cleanup(func() { _ = unix.Close(at) })
	return at
}

// A call has the last size at once while the next one is found, and nobody waits for a layer of many files.
func TestCallsDoNotWaitForASize(t *testing.T) {
	dir := t.TempDir()
	var d diskUsages
	d.walks.Lock() // a measurement takes its time
	if got := d.of(firstSizes(), "a", dir); !got.when.IsZero() {
		t.Errorf("a size that cannot be known: %+v", got)
	}
	running := d.known["a"].measured
	d.walks.Unlock()
	<-running
	first := d.of(firstSizes(), "a", dir)
	if first.when.IsZero() || first.inodes != 0 {
		t.Errorf("%+v", first)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := d.of(firstSizes(), "a", dir); got != first {
		t.Errorf("%+v, a moment after %+v", got, first)
	}
	d.known["a"].now.when = first.when.Add(-diskUsageAge)
	d.walks.Lock()
	if got := d.of(firstSizes(), "a", dir); got.inodes != 0 {
		t.Errorf("%+v while the next size is found", got)
	}
	running = d.known["a"].measured
	d.walks.Unlock()
	<-running
	if got := d.of(firstSizes(), "a", dir); got.inodes != 1 {
		t.Errorf("%+v", got)
	}
}
