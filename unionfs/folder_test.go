package unionfs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
)

// copyFolder copies the folder src to a new one.
func copyFolder(ctx context.Context, t *testing.T, src, dst string) error {
	t.Helper()
	must(t, os.Mkdir(dst, 0o700))
	in, err := os.Open(src)
	must(t, err)
	defer in.Close()
	return unionfs.CopyFolder(ctx, dst, in)
}

func TestAFolderIsCopiedAsItIs(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	must(t, os.WriteFile(filepath.Join(src, "file"), []byte("text"), 0o600))
	must(t, os.Mkdir(filepath.Join(src, "folder"), 0o711))
	must(t, os.Link(filepath.Join(src, "file"), filepath.Join(src, "folder/hard")))
	must(t, os.Symlink("/etc", filepath.Join(src, "soft")))
	must(t, unix.Mkfifo(filepath.Join(src, "fifo"), 0o640))
	must(t, unix.Mknod(filepath.Join(src, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(t, unix.Mknod(filepath.Join(src, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
	must(t, unix.Setxattr(filepath.Join(src, "file"), "user.key", []byte("value"), 0))
	for _, name := range []string{"", "file", "folder", "soft"} {
		must(t, os.Lchown(filepath.Join(src, name), 1000, 1001))
	}
	must(t, unix.Chmod(filepath.Join(src, "file"), 0o4711))
	must(t, unix.Chmod(src, 0o1770))
	must(t, unix.Setxattr(src, "user.top", []byte("folder"), 0))
	must(t, copyFolder(t.Context(), t, src, dst))

	var names []string
	entries, err := os.ReadDir(dst)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"fifo", "file", "folder", "soft"}; !slices.Equal(names, want) {
		t.Errorf("the copy has %q, want %q", names, want)
	}
	for _, name := range []string{"", "fifo", "file", "folder", "folder/hard", "soft"} {
		var want, got unix.Stat_t
		must(t, unix.Lstat(filepath.Join(src, name), &want))
		must(t, unix.Lstat(filepath.Join(dst, name), &got))
		if got.Mode != want.Mode || got.Uid != want.Uid || got.Gid != want.Gid || got.Nlink != want.Nlink || got.Mtim != want.Mtim {
			t.Errorf("/%s is %+v, want %+v", name, got, want)
		}
	}
	if target, err := os.Readlink(filepath.Join(dst, "soft")); target != "/etc" || err != nil {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	for name, key := range map[string]string{"file": "user.key", "": "user.top"} {
		if _, err := unix.Getxattr(filepath.Join(dst, name), key, nil); err != nil {
			t.Errorf("attribute %s: %v", key, err)
		}
	}
}

func TestACopyOfAFolderTakesNoRoomForHolesAndLinks(t *testing.T) {
	src, small := t.TempDir(), t.TempDir()
	must(t, unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must(t, unix.Unmount(small, 0)) })
	must(t, os.WriteFile(filepath.Join(src, "a"), make([]byte, 600<<10), 0o600))
	must(t, os.Link(filepath.Join(src, "a"), filepath.Join(src, "b")))
	must(t, os.Truncate(filepath.Join(src, "a"), 1<<30))
	must(t, copyFolder(t.Context(), t, src, filepath.Join(small, "fits")))
}

func TestACopyOfAFolderEndsWithItsContext(t *testing.T) {
	src := t.TempDir()
	must(t, os.WriteFile(filepath.Join(src, "a"), nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := copyFolder(ctx, t, src, filepath.Join(t.TempDir(), "copy")); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
