package thread

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// As makes files of the user and has the process's capabilities, also for New within it. No other thread is changed.
func TestCallsMakeFilesOfTheirUser(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil { // which the user cannot enter without capabilities
		t.Fatal(err)
	}
	make := func(name string) error { return os.WriteFile(filepath.Join(dir, name), nil, 0o600) }
	err := As(700, func() error {
		return errors.Join(make("as"), New(func() error { return make("new") }))
	})
	if err := errors.Join(err, make("own"), New(func() error { return make("new own") })); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"as": 700, "new": 700, "own": 0, "new own": 0} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || st.Uid != want || st.Gid != want {
			t.Errorf("%s belongs to %d:%d, %v, want %d", name, st.Uid, st.Gid, err, want)
		}
	}
}

// A thread ends with its call, and is never the process's first, which could not end.
func TestThreadsEnd(t *testing.T) {
	surroundings.Root(t)
	for range 100 {
		var own int
		if err := New(func() error { own = unix.Gettid(); return nil }); err != nil || own == unix.Getpid() {
			t.Fatalf("thread %d of process %d, %v", own, unix.Getpid(), err)
		}
	}
	if left, err := os.ReadDir("/proc/self/task"); err != nil || len(left) > 50 {
		t.Errorf("%d threads are left, %v", len(left), err)
	}
	wrong := errors.New("wrong")
	if err := As(1, func() error { return wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
}
