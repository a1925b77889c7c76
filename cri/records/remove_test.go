package records

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// A record goes last: a removal that fails is repeated.
func TestARecordStaysUntilAllElseIsRemoved(t *testing.T) {
	surroundings.Root(t)
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sandbox, container := NewID(), NewID()
	if err := errors.Join(s.WriteSandbox(Sandbox{ID: sandbox}), s.WriteContainer(Container{ID: container})); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir    string
		remove func() error
		read   func() error
	}{
		"sandbox": {
			s.SandboxDir(sandbox), func() error { return s.RemoveSandbox(sandbox) },
			func() error { _, err := s.Sandbox(sandbox); return err },
		},
		"container": {
			s.containerDir(container), func() error { return s.RemoveContainer(container) },
			func() error { _, err := s.Container(container); return err },
		},
	} {
		busy := filepath.Join(test.dir, "z-busy")
		if err := errors.Join(os.Mkdir(busy, 0o700), unix.Mount("test", busy, "tmpfs", 0, "size=4k")); err != nil {
			t.Fatal(err)
		}
		if err := test.remove(); err == nil {
			t.Errorf("%s: a folder that cannot be removed is removed", name)
		}
		if err := test.read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(unix.Unmount(busy, 0), test.remove(), test.remove()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(test.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAContainerIsHiddenWhileItIsRemoved(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	id := NewID()
	if err := s.WriteContainer(Container{ID: id, Name: "a"}); err != nil {
		t.Fatal(err)
	}
	check := func(when string, listed bool) {
		t.Helper()
		all, err := s.Containers()
		if err != nil || (len(all) == 1) != listed {
			t.Errorf("%s: %v, %v", when, all, err)
		}
		if _, err := s.Container(id); (err == nil) != listed || !listed && !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", when, err)
		}
		if r, err := s.ContainerToRemove(id); err != nil || r.Name != "a" {
			t.Errorf("%s: %v, %v", when, r, err)
		}
	}
	check("before", true)
	if err := errors.Join(s.HideContainer(id), s.HideContainer(id)); err != nil {
		t.Fatal(err)
	}
	check("hidden", false)
	if err := s.ShowContainer(id); err != nil {
		t.Fatal(err)
	}
	check("shown", true)
	if err := errors.Join(s.HideContainer(id), s.RemoveContainer(id)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ContainerToRemove(id); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed: %v", err)
	}
}

// An ID of a caller names no other folder.
func TestOnlyFoldersOfIDsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(dir, "other"), "sandbox", Sandbox{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandbox("../other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a record of another folder: %v", err)
	}
	for _, id := range []string{"../other", "", "."} {
		if err := errors.Join(s.RemoveSandbox(id), s.RemoveContainer(id)); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
}

// What a killed server has left goes: a folder whose record it had not written or was removing, an unfinished file.
func TestStrayFilesAreRemoved(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	whole, begun, ending := NewID(), NewID(), NewID()
	err = errors.Join(
		s.WriteContainer(Container{ID: whole}), s.WritePod(whole, Pod{}), s.WritePod(begun, Pod{}),
		s.WriteContainer(Container{ID: ending}), s.HideContainer(ending),
		os.WriteFile(filepath.Join(s.containerDir(whole), "container.json.new"), nil, 0o600),
		os.WriteFile(filepath.Join(s.containerDir(whole), "pod.json.new-123"), nil, 0o600),
	)
	if err == nil {
		err = s.RemoveStray()
	}
	if err != nil {
		t.Fatal(err)
	}
	folders, err := os.ReadDir(filepath.Join(s.dir, containers))
	if err != nil || len(folders) != 1 || folders[0].Name() != whole {
		t.Errorf("%v, %v", folders, err)
	}
	if files, err := os.ReadDir(s.containerDir(whole)); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
