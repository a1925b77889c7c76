package images

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// An archive may expand to maxExpansion bytes for each compressed byte, and freeExpansion
// more. Gzip cannot do more than that; a sparse file, bzip2 and xz can.
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
		return fmt.Errorf("%d compressed bytes expand to %d bytes, more than %d times as many", e.packed.n, size, maxExpansion)
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

// stream is the tar in an image file. It reports the end of the file only by itself, so that
// a reader of the tar that meets it has not found the tar's end marker.
type stream struct {
	in        io.Reader
	expansion expansion
	hash      hash.Hash // of all that was read; nil if it is not needed
	n         int64     // bytes read
	ended     bool      // the end of the file was met
	ending    error
}

// openStream decompresses an image file.
func openStream(file io.Reader) (*stream, error) {
	packed := &counter{in: file}
	e := expansion{packed}
	in, err := decompress(packed, e)
	if err != nil {
		return nil, err
	}
	return &stream{in: in, expansion: e, hash: sha512.New()}, nil
}

// Decompress returns what is in a file that is plain or compressed with gzip, bzip2, xz or
// Zstandard. A read fails if the file expands more than 1,100 times.
func Decompress(file io.Reader) (io.Reader, error) {
	s, err := openStream(file)
	if err != nil {
		return nil, err
	}
	s.hash = nil
	return s, nil
}

// id returns the image ID of what was read.
func (s *stream) id() string { return idPrefix + hex.EncodeToString(s.hash.Sum(nil)) }

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if s.ending != nil {
		s.ended = s.ended || errors.Is(s.ending, io.EOF)
		return 0, s.ending
	}
	n, err := s.in.Read(p)
	s.n += int64(n)
	if s.hash != nil {
		s.hash.Write(p[:n])
	}
	s.ending = err
	if err == nil {
		s.ending = s.expansion.allow(s.n)
	}
	if n == 0 && s.ending != nil {
		return s.Read(p)
	}
	return n, nil
}

// drain reads what follows a tar's end marker, which is padding: zeros.
func (s *stream) drain(buffer []byte) error {
	for {
		n, err := s.Read(buffer)
		for _, b := range buffer[:n] {
			if b != 0 {
				return errors.New("read archive: data follows its end marker")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read image: %w", err)
		}
	}
}
