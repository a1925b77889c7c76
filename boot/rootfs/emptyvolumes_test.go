package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
	"kurma.io/stager/tests/surroundings"
)

// A volume is the folder that the daemon has made for it; without one it is a new folder with the volume's mode and owner.
func TestEmptyVolumesAreTheDaemonsFoldersOrNew(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	given := filepath.Join(dir, "given")
	if err := errors.Join(os.Mkdir(given, 0o700), os.WriteFile(filepath.Join(given, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	volumes := []plan.EmptyVolume{
		{Path: filepath.Join(dir, "volumes/one"), Given: given, Mode: 0o755, UID: 5},
		{Path: filepath.Join(dir, "volumes/two"), Mode: 0o1777, UID: 5, GID: 6},
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its mount namespace
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			MakeEmptyVolumes(volumes))
		if _, open := os.Stat(filepath.Join(volumes[0].Path, "file")); open != nil {
			err = errors.Join(err, open)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][3]uint32{given: {0o700, 0, 0}, volumes[1].Path: {0o1777, 5, 6}} {
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err != nil {
			t.Fatal(err)
		}
		if have := [3]uint32{stat.Mode &^ unix.S_IFMT, stat.Uid, stat.Gid}; have != want {
			t.Errorf("%s has mode and owner %o, want %o", path, have, want)
		}
	}
	missing := []plan.EmptyVolume{{Path: filepath.Join(dir, "volumes/three"), Given: filepath.Join(dir, "none")}}
	if err := MakeEmptyVolumes(missing); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "none") {
		t.Errorf("a folder that the daemon has not made: %v", err)
	}
}
