package unionfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
)

func TestStackedRecognizesAnOverlay(t *testing.T) {
	plain := t.TempDir()
	for dir, want := range map[string]bool{plain: false, overlayAt(t, plain): true} {
		if got, err := unionfs.Stacked(dir); err != nil || got != want {
			t.Errorf("%s: %t, %v", dir, got, err)
		}
	}
	if _, err := unionfs.Stacked(filepath.Join(plain, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is missing: %v", err)
	}
	for magic, want := range map[int64]bool{
		0x61756673: true, unix.OVERLAYFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: false, unix.EXT4_SUPER_MAGIC: false,
	} {
		if got := unionfs.StackedType(magic); got != want {
			t.Errorf("type %#x: %t", magic, got)
		}
	}
}
