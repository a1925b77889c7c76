package copies

import (
	"archive/tar"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// checkRoom refuses a source that the target's file system cannot hold as a whole, before anything is copied. Holes
// need no room, but time: see maxHoles. It looks at each file of the source: Unpack no longer does.
func (t *Target) checkRoom(ctx context.Context, s *Source) error {
	p := &packer{
		ctx: ctx, out: tar.NewWriter(io.Discard), warn: func(string) {}, links: make(map[inode]string),
		measure: true,
	}
	if err := p.add(s.file, cmp.Or(s.base, ".")); err != nil {
		return err
	}
	t.checked = true
	return hasRoom(int(t.folder.Fd()), p.measured)
}

// hasRoom refuses what a file system cannot hold, before it is full.
func hasRoom(at int, size int64) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at, &fs); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	// a file system without blocks has no limit
	if free := fs.Bavail * uint64(fs.Bsize); fs.Blocks > 0 && uint64(size) > free {
		return fmt.Errorf("%w: the copy needs %d bytes, and there are %d", unix.ENOSPC, size, free)
	}
	return nil
}
