package unionfs

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// CopyFolder makes the empty folder dst a copy of src, a folder of an assembled root, which is open for reading:
// owner, mode, times, extended attributes and contents. Hard links within src and holes stay. Symbolic links are
// copied and never followed. Devices are left out. src must not change meanwhile. After an error dst has a part of
// the copy.
func CopyFolder(ctx context.Context, dst string, src *os.File) error {
	out, err := os.OpenFile(dst, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer out.Close()
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
