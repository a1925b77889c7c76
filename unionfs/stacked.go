package unionfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// aufsMagic is AUFS_SUPER_MAGIC of statfs(2), "aufs" in ASCII.
const aufsMagic = 0x61756673

// Stacked reports whether dir lies on a stacked file system, overlay or aufs. Neither can
// hold the directory that another one writes to. The error is that of statfs(2).
func Stacked(dir string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return stackedType(fs.Type), nil
}

func stackedType(magic int64) bool {
	return magic == unix.OVERLAYFS_SUPER_MAGIC || magic == aufsMagic
}
