package pods

import (
	"os"
	"path/filepath"

	"kurma.io/stager/internal/kernelfs"

	"golang.org/x/sys/unix"
)

// Reachable reports whether users of the host who are not root can execute programs that are made at or below a path:
// it is a folder or a regular file, they can search every folder on the way, and the file system stores programs and
// heeds set-user-ID bits.
func Reachable(path string) bool {
	file, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return false
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 {
		return false
	}
	if ofKernel, err := kernelfs.Has(file); err != nil || ofKernel {
		return false
	}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		var stat unix.Stat_t
		if err := unix.Stat(at, &stat); err != nil || stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&unix.S_IXOTH == 0 {
			return false
		}
		if at == "/" {
			return true
		}
	}
}
