package unionfstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/unionfs"
)

// Unmount detaches the root at r.Target with everything mounted inside, and empties r.Scratch, so that a test can
// mount there again. It is not an error if nothing is mounted. While a process uses the root, the root continues to
// exist without a path. A stager needs no Unmount: its roots end with its mount namespace.
func Unmount(r unionfs.Root) error {
	err := unix.Unmount(r.Target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount root of app %q: %s: %w", r.App, r.Target, err)
	}
	entries, err := os.ReadDir(r.Scratch)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("empty scratch directory of app %q: %w", r.App, err)
	}
	for _, e := range entries {
		if err := rmtree.Remove(filepath.Join(r.Scratch, e.Name())); err != nil {
			return fmt.Errorf("empty scratch directory of app %q: %w", r.App, err)
		}
	}
	return nil
}
