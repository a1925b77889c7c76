package rmtree

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// deepen makes levels of folders, each in the last, and a file in the deepest.
func deepen(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range levels {
		if err != nil {
			break
		}
		var next int
		if err = unix.Mkdirat(at, "d", 0o700); err == nil {
			next, err = unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		unix.Close(at)
		at = next
	}
	if err == nil {
		err = unix.Mknodat(at, "file", unix.S_IFREG|0o600, 0)
	}
	unix.Close(at)
	if err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, path string) {
	t.Helper()
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}

// The test removes a tree deeper than the process may have descriptors.
func TestRemoveDeletesADeepTree(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 64
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	dir := filepath.Join(t.TempDir(), "tree")
	for _, branch := range []string{"a", "b", ".rmtree-2"} {
		if err := os.MkdirAll(filepath.Join(dir, branch), 0o700); err != nil {
			t.Fatal(err)
		}
		deepen(t, filepath.Join(dir, branch), 3000)
	}
	gone(t, dir)
}

// The test has folders, files and links beside each other, many more than
// are read at a time.
func TestRemoveDeletesAWideTree(t *testing.T) {
	surroundings.Root(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tree")
	for n := range 1000 {
		folder := filepath.Join(dir, strconv.Itoa(n), "x")
		if err := errors.Join(
			os.MkdirAll(folder, 0o000),
			os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link"+strconv.Itoa(n))),
			os.Symlink(outside, filepath.Join(folder, "link")),
			os.WriteFile(filepath.Join(folder, "file"), nil, 0o000),
		); err != nil {
			t.Fatal(err)
		}
	}
	gone(t, dir)
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// The test is about folders of an overlay's lower directory
// (overlayfs.rst, redirect_dir).
func TestRemoveDeletesWhatCannotBeMoved(t *testing.T) {
	surroundings.Root(t)
	runtime.LockOSThread() // which ends with the test, and its mount namespace
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil { // not all may hold an upper directory
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	root := filepath.Join(dir, "root")
	for _, folder := range []string{"lower/a/b/c/d", "lower/a/e/f", "upper", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := "redirect_dir=off,lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	if err := unix.Rename(filepath.Join(root, "a/b/c"), filepath.Join(root, "c")); !errors.Is(err, unix.EXDEV) {
		t.Fatalf("a folder of the lower directory is moved: %v", err)
	}
	gone(t, filepath.Join(root, "a"))
}

func TestRemoveFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(os.Mkdir(target, 0o700), os.Symlink(target, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, file, filepath.Join(dir, "nothing")} {
		gone(t, path)
	}
	if _, err := os.Stat(target); err != nil {
		t.Error(err)
	}
}

// The test has a mount point in the way, in a mount namespace
// of the test's thread.
func TestRemoveReportsWhatItCannotDelete(t *testing.T) {
	surroundings.Root(t)
	runtime.LockOSThread() // which ends with the test
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tree")
	busy := filepath.Join(dir, "busy")
	if err := os.MkdirAll(busy, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", busy, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(busy, unix.MNT_DETACH)
	err := Remove(dir)
	var at *os.PathError
	if !errors.As(err, &at) || at.Path != "busy" || !errors.Is(err, unix.EBUSY) {
		t.Errorf("Remove() = %v, want that busy is", err)
	}
}

func TestEmptyKeepsTheFolder(t *testing.T) {
	dir := t.TempDir()
	deepen(t, dir, 3)
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := Empty(dir); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	var failed *os.PathError
	if err := Empty(filepath.Join(dir, "none")); !errors.As(err, &failed) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}
