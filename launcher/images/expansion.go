package images

import (
	"archive/tar"
	"cmp"
	"fmt"
	"io"
	"sync/atomic"

	"kurma.io/stager/internal/aside"
	"kurma.io/stager/internal/sparse"
)

// An archive may expand to maxExpansion bytes for each compressed byte, which gzip cannot exceed, and to a number of
// free bytes more: bzip2, xz and Zstandard need no more than a few KB for harmless zeros, and a sparse file for a hole.
// The worst that such a file of a few KB does is 128 MiB on the disk, where zeros are holes, and the CPU time of about
// 700 MB of an image in gzip: a layer's conversion hashes the holes of sparse files.
const (
	maxExpansion = 1100
	freeBytes    = 128 << 20
	slowBytes    = 64 << 20 // instead, of bzip2 and xz, whose decoders take more CPU time
	freeHoles    = 1 << 30  // of all sparse files
)

// expansion measures how much larger an archive is than the file that it comes from.
type expansion struct {
	packed *counter // the compressed file
	free   int64    // bytes
}

// allow returns an error if so many bytes are too many for what was read of the file.
func (e expansion) allow(size int64) error {
	if packed := e.packed.n.Load(); size-e.free > maxExpansion*packed {
		return fmt.Errorf("%d compressed bytes expand to %d bytes, more than %d times as many", packed,
			size, maxExpansion)
	}
	return nil
}

// counter counts the bytes read. Another goroutine may do so, see Stream.Ahead.
type counter struct {
	in io.Reader
	n  atomic.Int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Stream is what is in a file that may be compressed. A read fails if the file expands to more than 1,100 times its
// size and 128 MiB, or 64 MiB for bzip2 and xz.
type Stream struct {
	in        io.Reader
	expansion expansion
	n         int64 // bytes read, and the data of sparse files
	sparse    int64 // bytes of sparse files
	ending    error
}

// Decompress returns the content of a file that is plain or compressed with gzip, bzip2, xz or Zstandard.
func Decompress(file io.Reader) (*Stream, error) {
	packed := &counter{in: file}
	in, e, err := decompress(packed)
	if err != nil {
		return nil, err
	}
	return &Stream{in: in, expansion: e}, nil
}

// Ahead decompresses in a goroutine of its own, ahead of the reader, until stop is called, which waits for its end.
// Stop may be called again.
func (s *Stream) Ahead() (stop func()) {
	ahead := aside.Read(s.in)
	s.in = ahead
	return ahead.Close
}

// Content returns the content of an entry of the stream, which archive reads. A few bytes of the stream may claim a
// sparse file of any size: Content returns an error if the sparse files together have more than 1 GiB and 1,100 times
// what was read of the stream's file. What sparse.Write writes of a sparse file counts as read. What any other entry
// claims is in the stream, and counts when it is read.
func (s *Stream) Content(header *tar.Header, archive io.Reader) (io.Reader, error) {
	if !sparse.Is(header) {
		return archive, nil
	}
	holes := expansion{s.expansion.packed, freeHoles}
	if err := holes.allow(header.Size); err != nil { // alone, so that the sum does not overflow
		return nil, err
	}
	s.sparse += header.Size
	return sparseContent{archive, s}, holes.allow(s.sparse)
}

// sparseContent is the content of a sparse file.
type sparseContent struct {
	in     io.Reader
	stream *Stream
}

// Read implements io.Reader.
func (c sparseContent) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.stream.n += int64(sparse.Data(p[:n]))
	return n, cmp.Or(c.stream.expansion.allow(c.stream.n), err)
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) {
	if s.ending != nil {
		return 0, s.ending
	}
	n, err := s.in.Read(p)
	s.n += int64(n)
	s.ending = err
	if err == nil {
		s.ending = s.expansion.allow(s.n)
	}
	if n == 0 && s.ending != nil {
		return s.Read(p)
	}
	return n, nil
}
