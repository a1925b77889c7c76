package copies

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
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

// hole is the size of a part of a file that becomes a hole if it has nothing but zeros: no file system has larger
// blocks, but for file systems that store zeros well.
const hole = 4 << 10

// writeSparse writes a new file, with holes for zeros.
func writeSparse(file *os.File, content io.Reader) error {
	buffer := make([]byte, 64*hole)
	for at := int64(0); ; {
		n, err := io.ReadFull(content, buffer)
		for data := buffer[:n]; len(data) > 0; {
			part, zero := firstPart(data)
			if !zero {
				if _, err := file.WriteAt(part, at); err != nil {
					return err
				}
			}
			at, data = at+int64(len(part)), data[len(part):]
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return file.Truncate(at)
		case err != nil:
			return err
		}
	}
}

// firstPart returns the longest beginning of data with blocks that are all zero, or all not.
func firstPart(data []byte) (part []byte, zero bool) {
	var zeros [hole]byte
	for at := 0; at < len(data); at += hole {
		block := data[at:min(at+hole, len(data))]
		switch is := bytes.Equal(block, zeros[:len(block)]); {
		case at == 0:
			zero = is
		case is != zero:
			return data[:at], zero
		}
	}
	return data, zero
}
