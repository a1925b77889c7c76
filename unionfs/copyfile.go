package unionfs

import (
	"errors"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// regular copies a file's content.
func (c *copier) regular(e *entry, out int) (err error) {
	// O_NONBLOCK: if the file has been replaced by a fifo, the open does not block.
	in, err := openFileAt(int(e.dir.Fd()), e.name, unix.O_RDONLY|unix.O_NOATIME|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	dst, err := openFileAt(out, e.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := dst.Close(); err == nil {
			err = closeErr
		}
	}()
	if e.stat.Size == 0 || c.clone(dst, in) {
		return nil
	}
	if e.stat.Blocks*512 >= e.stat.Size {
		if err = c.copyBytes(dst, in, math.MaxInt64); errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	return c.copySparse(dst, in, e.stat.Size)
}

// openFileAt opens name in the directory dir, never through a symbolic link. The
// caller closes the file.
func openFileAt(dir int, name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// clone makes dst share in's data, if both are on one file system that supports it.
func (c *copier) clone(dst, in *os.File) bool {
	if c.noClone {
		return false
	}
	err := unix.IoctlFileClone(int(dst.Fd()), int(in.Fd()))
	c.noClone = err != nil
	return err == nil
}

// copySparse copies the parts of in that hold data, and leaves holes between them.
func (c *copier) copySparse(dst, in *os.File, size int64) error {
	if err := dst.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		data, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		}
		if err != nil {
			return err
		}
		hole, err := in.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := c.copyRange(dst, in, data, hole); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

func (c *copier) copyRange(dst, in *os.File, from, to int64) error {
	if _, err := in.Seek(from, io.SeekStart); err != nil {
		return err
	}
	if _, err := dst.Seek(from, io.SeekStart); err != nil {
		return err
	}
	return c.copyBytes(dst, in, to-from)
}

// copyBytes copies most bytes; if in ends before, it returns io.EOF. The end of the copier's ctx ends it after a piece.
func (c *copier) copyBytes(dst, in *os.File, most int64) error {
	const piece = 16 << 20
	for most > 0 {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(dst, in, min(most, piece)) // copy_file_range(2) where it works
		if err != nil {
			return err
		}
		most -= n
	}
	return nil
}
