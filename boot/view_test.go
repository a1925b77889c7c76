package boot

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// inRoot calls do in a mount namespace of its own with the folder as root.
func inRoot(dir string, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread, and the namespace with it
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		if err == nil {
			err = errors.Join(unix.Chroot(dir), unix.Chdir("/"))
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// An app reaches /dev/shm and, in the pod's PID namespace, /proc: neither a set-user-ID file nor a device works there.
func TestTheViewHasNoDevicesAndNoSetUserID(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := inRoot(dir, func() error {
		if err := errors.Join(mountProc(), privateFolders(1<<20, nil)); err != nil {
			return err
		}
		for path, want := range map[string]int64{
			"/proc":               unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC,
			names.PrivateDir:      unix.ST_NOSUID | unix.ST_NODEV,
			names.RuntimeDir:      unix.ST_NOSUID | unix.ST_NODEV,
			names.SharedMemoryDir: unix.ST_NOSUID | unix.ST_NODEV,
		} {
			var fs unix.Statfs_t
			if err := unix.Statfs(path, &fs); err != nil {
				return &os.PathError{Op: "statfs", Path: path, Err: err}
			}
			if got := fs.Flags & (unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC); got != want {
				t.Errorf("%s has the flags %#x, want %#x", path, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
