package pods

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReachableNeedsEveryFolderOnTheWay(t *testing.T) {
	top, err := os.MkdirTemp("/tmp", "reachable-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	data := filepath.Join(top, "a/data")
	file := filepath.Join(data, "file")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(what string, want bool) {
		t.Helper()
		if Reachable(data) != want || Reachable(file) != want {
			t.Errorf("%s: reachable: folder %v, file %v", what, Reachable(data), Reachable(file))
		}
	}
	modes := func(what string, mode os.FileMode, want bool, dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
		}
		check(what, want)
	}
	modes("a closed folder above", 0o700, false, top)
	modes("folders that can be searched", 0o711, true, top, filepath.Dir(data), data)
	modes("readable, not searchable", 0o754, false, data)
	modes("open", 0o755, true, data)
	for name, make := range map[string]func(string) error{
		"fifo":   func(path string) error { return unix.Mkfifo(path, 0o666) },
		"device": func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) },
		"socket": func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) },
		"proc": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), unix.Mount("proc", path, "proc", 0, ""))
		},
	} {
		path := filepath.Join(data, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if Reachable(path) {
			t.Errorf("%s: reachable", name)
		}
	}
	if err := unix.Unmount(filepath.Join(data, "proc"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", filepath.Dir(data), "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(top+"/a", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("nosuid", false)
}
