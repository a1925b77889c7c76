package images

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
)

// An archive may expand to maxExpansion bytes for each compressed byte, and freeExpansion
// more. Gzip cannot do more than that; a sparse file, bzip2, xz and Zstandard can.
const (
	maxExpansion  = 1100
	freeExpansion = 64 << 20
)

// expansion measures how much larger an archive is than the file that it comes from.
type expansion struct {
	packed *counter // the compressed file
}

// allow returns an error if so many bytes are too many for what was read of the file.
func (e expansion) allow(size int64) error {
	if size-freeExpansion > maxExpansion*e.packed.n {
		return fmt.Errorf("%d compressed bytes expand to %d bytes, more than %d times as many", e.packed.n, size,
			maxExpansion)
	}
	return nil
}

// counter counts the bytes read.
type counter struct {
	in io.Reader
	n  int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

// Stream is what is in a file that may be compressed. A read fails if the file expands more than 1,100 times.
type Stream struct {
	in        io.Reader
	expansion expansion
	n         int64 // bytes read, and those of sparse files
	ending    error
}

// Decompress returns the content of a file that is plain or compressed with gzip, bzip2, xz or Zstandard.
func Decompress(file io.Reader) (*Stream, error) {
	packed := &counter{in: file}
	e := expansion{packed}
	in, err := decompress(packed, e)
	if err != nil {
		return nil, err
	}
	return &Stream{in: in, expansion: e}, nil
}

// Sparse counts an entry of the stream as read if it is a sparse file: a few bytes of the stream may claim any size. It
// returns an error if the stream's file expands more than 1,100 times by that. What any other entry claims is in
// the stream, and counts when it is read.
func (s *Stream) Sparse(header *tar.Header) error {
	if !IsSparse(header) {
		return nil
	}
	if err := s.expansion.allow(header.Size); err != nil { // alone, so that the sum does not overflow
		return err
	}
	s.n += header.Size
	return s.expansion.allow(s.n)
}

// IsSparse reports whether an entry is a sparse file, of which an archive does not have the holes.
func IsSparse(header *tar.Header) bool {
	for record := range header.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return true
		}
	}
	return header.Typeflag == tar.TypeGNUSparse
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
