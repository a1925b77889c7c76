package images

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"os"
)

// entryContent counts what CopyHoles writes of an entry's content.
type entryContent struct {
	in     io.Reader
	stream *Stream
	at     int64 // bytes read
	isData bool  // the current part of the file is not a hole
}

// Read implements io.Reader.
func (c *entryContent) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	for part := range parts(p[:n], c.at) {
		begun := c.at % holeSize
		if begun == 0 {
			c.isData = false
		}
		if !c.isData && !isZero(part) {
			c.isData = true
			c.stream.data += begun
		}
		if c.isData {
			c.stream.data += int64(len(part))
		}
		c.at += int64(len(part))
	}
	if tooMuch := c.stream.expansion.allow(c.stream.data, freeData); tooMuch != nil {
		return n, tooMuch
	}
	return n, err
}

// parts yields what p has of each part of a file in which p begins at a byte.
func parts(p []byte, at int64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for size := holeSize - at%holeSize; len(p) > 0; size = holeSize {
			part := p[:min(int64(len(p)), size)]
			if p = p[len(part):]; !yield(part) {
				return
			}
		}
	}
}

// isZero reports whether p is of zeros alone.
func isZero(p []byte) bool { return len(p) == 0 || p[0] == 0 && bytes.Equal(p[1:], p[:len(p)-1]) }

// CopyHoles copies in to an empty file. Parts of 64 KiB that are zeros become holes. Buffer is of whole parts.
func CopyHoles(out *os.File, in io.Reader, buffer []byte) error {
	var size, written int64
	for {
		n, err := io.ReadFull(in, buffer)
		for part := range parts(buffer[:n], 0) {
			if !isZero(part) {
				if _, err := out.WriteAt(part, size); err != nil {
					return err
				}
				written = size + int64(len(part))
			}
			size += int64(len(part))
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return err
		case written < size: // the last part is a hole
			return out.Truncate(size)
		default:
			return nil
		}
	}
}
