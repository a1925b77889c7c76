package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"kurma.io/stager/internal/sparse"
)

const (
	block     = 512       // of a tar
	endMarker = 2 * block // zeros
)

// Archive reads the tar of an image file, and decides what a whole one is. A tar ends with two blocks of zeros. Some
// programs, such as Kurma's own build tool, close the compressed file before the tar, so their images have neither
// this end marker nor the last file's padding. An Archive accepts a tar that ends where a file ends, see Marked, and
// refuses one that ends within a file or its header, and data other than zeros after the end marker.
type Archive struct {
	in     *input
	tar    *tar.Reader
	sparse bool  // the latest entry is a sparse file
	err    error // of the latest Next
	marked bool
}

// NewArchive reads a tar that is not compressed.
func NewArchive(in io.Reader) *Archive {
	counted := &input{in: in, hash: sha512.New()}
	return &Archive{in: counted, tar: tar.NewReader(counted)}
}

// Next goes on to the next entry. After the last one it reads what follows to the end of the input, and returns
// io.EOF. The error for a tar that is cut off wraps io.ErrUnexpectedEOF.
func (a *Archive) Next() (*tar.Header, error) {
	if a.err != nil {
		return nil, a.err
	}
	var header *tar.Header
	header, a.err = a.next()
	return header, a.err
}

// Read reads the content of the entry that Next has returned.
func (a *Archive) Read(p []byte) (int, error) { return a.tar.Read(p) }

// ID returns the image ID of the tar, once Next has returned io.EOF.
func (a *Archive) ID() string { return "sha512-" + hex.EncodeToString(a.in.hash.Sum(nil)) }

// Size returns the bytes of the tar that have been read.
func (a *Archive) Size() int64 { return a.in.size }

// Marked returns whether the tar has an end marker, once Next has returned io.EOF.
func (a *Archive) Marked() bool { return a.marked }

func (a *Archive) next() (*tar.Header, error) {
	// What is read after the content is padding, headers and the end marker. The content of a sparse file may be a hole
	// without end; its caller may have read it.
	if !a.sparse {
		if _, err := io.Copy(io.Discard, a.tar); err != nil {
			return nil, err
		}
	}
	content := a.in.size
	header, err := a.tar.Next()
	if errors.Is(err, io.EOF) {
		return nil, a.end(content)
	}
	if err != nil {
		return nil, err
	}
	a.sparse = sparse.Is(header)
	return header, nil
}

// end returns io.EOF if the tar ends as it should. Content is where the latest entry's content has ended.
func (a *Archive) end(content int64) error {
	rest := max(0, a.in.size-(content+block-1)/block*block)
	if rest > a.in.zeros && !a.sparse { // an extended header without its entry
		return io.ErrUnexpectedEOF
	}
	a.marked = rest >= endMarker
	zeros := a.in.zeros
	size, err := io.Copy(io.Discard, a.in)
	if err != nil {
		return err
	}
	if size > 0 && a.in.zeros != zeros+size {
		return errors.New("data follows its end marker")
	}
	return io.EOF
}

// input counts what is read, for Archive.
type input struct {
	in    io.Reader
	hash  hash.Hash
	size  int64
	zeros int64 // at the end of what was read
}

// Read implements io.Reader.
func (i *input) Read(p []byte) (int, error) {
	n, err := i.in.Read(p)
	i.hash.Write(p[:n])
	i.size += int64(n)
	if data := len(bytes.TrimRight(p[:n], "\x00")); data == 0 {
		i.zeros += int64(n)
	} else {
		i.zeros = int64(n - data)
	}
	return n, err
}
