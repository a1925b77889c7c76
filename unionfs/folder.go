package unionfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// CopyFolder makes the empty folder dst a copy of src, a folder of an assembled root, which is open for reading:
// owner, mode, times, extended attributes and contents. Hard links within src and holes stay. Symbolic links are
// copied and never followed. Devices are left out. src must not change meanwhile.
//
// If dst's file system has too little room, the error wraps unix.ENOSPC and nothing has been copied. After any other
// error dst has a part of the copy.
func CopyFolder(ctx context.Context, dst string, src *os.File) error {
	out, err := os.OpenFile(dst, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := checkRoom(out, src); err != nil {
		return err
	}
	in, err := openDirAt(src, ".")
	if err != nil {
		return err
	}
	defer in.Close()
	c := &copier{
		ctx: ctx, top: int(out.Fd()), layers: []Layer{{Dir: src.Name()}}, markers: dropped,
		links: map[inode]string{},
	}
	if err := c.copyDirectory("", c.top, []source{{0, in}}); err != nil {
		return err
	}
	return folderAttributes(out, src)
}

// checkRoom refuses a folder that does not fit into the file system of out.
func checkRoom(out, src *os.File) error {
	needed, err := roomOf(src)
	if err != nil {
		return fmt.Errorf("measure folder: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(out.Fd()), &fs); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); fs.Blocks > 0 && needed > free { // a file system without blocks has no limit
		return fmt.Errorf("%w: the folder has %d bytes, and %d are free", unix.ENOSPC, needed, free)
	}
	return nil
}

// roomOf returns the bytes that the files in a folder occupy. A file with several names counts once.
func roomOf(src *os.File) (bytes uint64, err error) {
	dir, err := openDirAt(src, ".")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	seen := map[inode]bool{}
	var failed error
	_, err = anyPath(dir, "", func(parent *os.File, p string, _ bool) bool {
		var stat unix.Stat_t
		if failed = unix.Fstatat(int(parent.Fd()), path.Base(p), &stat, unix.AT_SYMLINK_NOFOLLOW); failed != nil {
			return true
		}
		id := inode{0, stat.Dev, stat.Ino}
		if stat.Nlink > 1 && seen[id] {
			return false
		}
		seen[id] = stat.Nlink > 1
		bytes += uint64(stat.Blocks) * 512 // whatever the size of the file system's blocks
		return false
	})
	return bytes, errors.Join(err, failed)
}
