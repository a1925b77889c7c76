package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/launcher/images"
)

// fill makes a file in the folder of a volume.
func fill(data string) error { return os.WriteFile(filepath.Join(data, "file"), []byte("text"), 0o600) }

func newStore(t *testing.T) *Store {
	t.Helper()
	return Open(filepath.Join(t.TempDir(), "volumes"))
}

// names lists the folder of the store.
func (s *Store) names(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func (s *Store) isWhole(name string) bool {
	text, _ := os.ReadFile(filepath.Join(s.Path(name), "file"))
	return string(text) == "text"
}

func free() error { return nil }

// Several makers of a volume make it once, and each returns when it is whole.
func TestAVolumeIsMadeOnce(t *testing.T) {
	s := newStore(t)
	var made atomic.Int32
	var makers sync.WaitGroup
	for range 10 {
		makers.Go(func() {
			err := Open(s.dir).Make(t.Context(), "v", func(data string) error {
				made.Add(1)
				return fill(data)
			})
			if err != nil || !s.isWhole("v") {
				t.Errorf("the volume is whole: %v; error %v", s.isWhole("v"), err)
			}
		})
	}
	makers.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("the volume was filled %d times", n)
	}
	if left := s.names(t); !slices.Equal(left, []string{"v"}) {
		t.Errorf("the store has %q", left)
	}
	if info, err := os.Stat(s.Path("v")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if err := s.Create(t.Context(), "v", fill); !errors.Is(err, ErrExists) {
		t.Errorf("Create of a volume that exists: %v", err)
	}
}

// While one process makes a volume, another one waits until its ctx ends.
func TestAWaitForAMakerEnds(t *testing.T) {
	s := newStore(t)
	err := s.Make(t.Context(), "v", func(string) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no more patience"))
		if err := s.Make(ctx, "v", fill); err == nil || !strings.Contains(err.Error(), "no more patience") {
			t.Errorf("a maker that gives up: %v", err)
		}
		if _, err := s.Get("v"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a volume that is being made: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A failed maker leaves nothing, and what a killed one has left is no volume and no part of the next one.
func TestOnlyWholeVolumesAreVolumes(t *testing.T) {
	s := newStore(t)
	full := errors.New("disk full")
	err := s.Make(t.Context(), "v", func(data string) error { return errors.Join(fill(data), full) })
	if !errors.Is(err, full) || len(s.names(t)) > 0 {
		t.Errorf("error %v, the store has %q", err, s.names(t))
	}
	half := filepath.Join(s.dir, newPrefix+"v", dataDir)
	if err := errors.Join(os.MkdirAll(half, 0o700), os.WriteFile(filepath.Join(half, "half"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); len(all) > 0 || err != nil {
		t.Errorf("volumes %v, %v", all, err)
	}
	if n, err := s.Leftovers(); n != 1 || err != nil {
		t.Errorf("%d leftovers, %v", n, err)
	}
	if err := s.Make(t.Context(), "v", fill); err != nil || !s.isWhole("v") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.Path("v"), "half")); err == nil {
		t.Error("the volume has a file of the maker that was killed")
	}
}

// Collect removes what killed makers and removers have left, and nothing of one that lives.
func TestCollectRemovesLeftovers(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{newPrefix + "a", oldPrefix + "B", newPrefix + "live", "v"} {
		if err := os.MkdirAll(filepath.Join(s.dir, name, dataDir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	live, err := images.LockFolder(filepath.Join(s.dir, newPrefix+"live"), unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if n, err := s.Collect(); n != 2 || err != nil {
		t.Errorf("%d were removed, %v", n, err)
	}
	if left := s.names(t); !slices.Equal(left, []string{newPrefix + "live", "v"}) {
		t.Errorf("the store has %q", left)
	}
	if n, err := Open(t.TempDir() + "/none").Collect(); n != 0 || err != nil {
		t.Errorf("of no store: %d, %v", n, err)
	}
}

// A volume that is not free stays, and a removal leaves nothing.
func TestAVolumeIsRemovedIfItIsFree(t *testing.T) {
	s := newStore(t)
	if err := s.Make(t.Context(), "v", fill); err != nil {
		t.Fatal(err)
	}
	used := errors.New("in use by me")
	if err := s.Remove(t.Context(), "v", func() error { return used }); !errors.Is(err, used) || !s.isWhole("v") {
		t.Errorf("a volume in use: %v", err)
	}
	if err := s.Remove(t.Context(), "v", free); err != nil || len(s.names(t)) > 0 {
		t.Errorf("error %v, the store has %q", err, s.names(t))
	}
	for _, name := range []string{"v", "", "..", "../volumes", newPrefix + "v"} {
		if err := s.Remove(t.Context(), name, free); !errors.Is(err, ErrNotFound) {
			t.Errorf("removal of %q: %v", name, err)
		}
	}
}

// While a removal looks for pods, nobody finds the volume: a pod that needs it gets a new one.
func TestAVolumeIsNotFoundWhileItIsRemoved(t *testing.T) {
	s := newStore(t)
	if err := s.Make(t.Context(), "v", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	err := s.Remove(t.Context(), "v", func() error {
		go func() { made <- s.Make(t.Context(), "v", fill) }()
		return nil
	})
	if err := errors.Join(err, <-made); err != nil || !s.isWhole("v") {
		t.Errorf("the new volume is whole: %v; error %v", s.isWhole("v"), err)
	}
}

// A path names a volume only if it is that of the volume's files; the path of a store has no symbolic links.
func TestPathsOfVolumes(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := Open(filepath.Join(dir, "link/state/volumes"))
	if want := filepath.Join(dir, "state/volumes/v/data"); s.Path("v") != want {
		t.Errorf("the path is %s, want %s", s.Path("v"), want)
	}
	for path, want := range map[string]string{
		s.Path("v"): "v", s.Path("v") + "/x": "", filepath.Dir(s.Path("v")): "", s.dir: "", "/": "", "": "",
		s.Path(".new-v"): "", "/elsewhere/v/data": "",
	} {
		if name, ok := s.NameOf(path); ok != (want != "") || ok && name != want {
			t.Errorf("%q is the path of %q, %v", path, name, ok)
		}
	}
}
