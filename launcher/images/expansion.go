package images

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
)

// An archive may expand to maxExpansion bytes for each compressed byte, and to so many bytes more. Gzip cannot do more
// than that; a sparse file, bzip2, xz and Zstandard can. The data of files is written to the disk; zeros become holes,
// and take nothing but time.
const (
	maxExpansion = 1100
	freeData     = 64 << 20
	freeZeros    = 1 << 30
)

// holeSize is the size of the parts of a file, from its start on, that become holes if they are zeros alone.
const holeSize = 64 << 10

// expansion measures how much larger an archive is than the file that it comes from.
type expansion struct {
	packed *counter // the compressed file
}

// allow returns an error if so many bytes, of which free cost nothing, are too many for what was read of the file.
func (e expansion) allow(size, free int64) error {
	if size-free > maxExpansion*e.packed.n {
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

// Stream is what is in a file that may be compressed. A read fails if the file expands to more than 1,100 times its
// size and 1 GiB, see also Content.
type Stream struct {
	in        io.Reader
	expansion expansion
	n         int64 // bytes read, and those of sparse files
	data      int64 // bytes of the entries' contents that are not in holes
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

// Content returns the content of an entry of the stream, which archive reads. A read fails if what CopyHoles has to
// write of all contents is more than 64 MiB and 1,100 times what was read of the stream's file. Content counts a sparse
// file as read: a few bytes of the stream may claim any size. What any other entry claims is in the stream, and counts
// when it is read.
func (s *Stream) Content(header *tar.Header, archive io.Reader) (io.Reader, error) {
	if IsSparse(header) {
		if err := s.expansion.allow(header.Size, freeZeros); err != nil { // alone, so that the sum does not overflow
			return nil, err
		}
		s.n += header.Size
		if err := s.expansion.allow(s.n, freeZeros); err != nil {
			return nil, err
		}
	}
	return &entryContent{in: archive, stream: s}, nil
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
		s.ending = s.expansion.allow(s.n, freeZeros)
	}
	if n == 0 && s.ending != nil {
		return s.Read(p)
	}
	return n, nil
}
