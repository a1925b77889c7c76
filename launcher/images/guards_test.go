package images

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"kurma.io/stager/tests/failing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// withFailing calls f in a thread in which a system call fails with EIO, as on a broken disk.
func withFailing(t *testing.T, call uint32, f func() error) error {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		if err := (failing.Call{Number: call, Errno: unix.EIO}).Fail(); err != nil {
			t.Error(err)
		}
		result <- f()
	}()
	return <-result
}

// An import whose files do not reach the disk has failed, and leaves nothing.
func TestAnImportThatIsNotOnTheDiskFails(t *testing.T) {
	s := newStore(t)
	data := archive(t, testManifest, dir("rootfs"))
	err := withFailing(t, unix.SYS_SYNCFS, func() error {
		_, err := s.importData(t, data)
		return err
	})
	if !errors.Is(err, unix.EIO) {
		t.Errorf("the import: %v", err)
	}
	s.checkOnly(t)
	if err := withFailing(t, unix.SYS_FSYNC, func() error { return writeRecord(t.TempDir(), Record{}) }); !errors.Is(err, unix.EIO) {
		t.Errorf("the record: %v", err)
	}
}

// A file of Zstandard has at most maxWindow bytes of its content kept.
func TestAWindowOfZstandardHasALimit(t *testing.T) {
	for size, refused := range map[int]bool{maxWindow: false, 2 * maxWindow: true} {
		var packed bytes.Buffer
		w, err := zstd.NewWriter(&packed, zstd.WithWindowSize(size))
		if err == nil {
			_, err = w.Write(archive(t, testManifest, dir("rootfs"), regular("rootfs/f", strings.Repeat("x", 1<<20))))
		}
		if err == nil {
			err = w.Flush() // or the frame has the size of its content, and no window
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := newStore(t).importData(t, packed.Bytes()); refused != (err != nil) || refused && !strings.Contains(err.Error(), "window size") {
			t.Errorf("a window of %d bytes: %v", size, err)
		}
	}
}

// The short way to a folder of an archive follows no link, which only walk may.
func TestAFolderIsFoundWithoutLinks(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "folder"), 0o755), os.Symlink("folder", filepath.Join(root, "link")), os.Symlink("/etc", filepath.Join(root, "out"))); err != nil {
		t.Fatal(err)
	}
	tree, err := openTree(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	for name, want := range map[string]error{"folder": nil, "link": unix.ELOOP, "out": unix.ELOOP, "../x": unix.EXDEV, "folder/../..": unix.EXDEV} {
		fd, err := tree.find(name)
		if err == nil {
			_ = unix.Close(fd)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}
