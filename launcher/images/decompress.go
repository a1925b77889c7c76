package images

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// compression is a compressed format of image files, recognized by its first bytes.
type compression struct {
	magic []byte
	open  func(*bufio.Reader, expansion) (io.Reader, error)
}

func compressions() []compression {
	all := []compression{
		{[]byte{0x1f, 0x8b}, func(r *bufio.Reader, _ expansion) (io.Reader, error) { return gzip.NewReader(r) }},
		{[]byte("BZh"), func(r *bufio.Reader, _ expansion) (io.Reader, error) { return bzip2.NewReader(r), nil }},
		{[]byte("\xfd7zXZ\x00"), func(r *bufio.Reader, e expansion) (io.Reader, error) {
			return xz.NewReader(guardXZ(r, e))
		}},
		{[]byte("\x28\xb5\x2f\xfd"), zstandard},
	}
	for n := range byte(16) { // frames that a decoder skips, by which pzstd begins (RFC 8878, 3.1.2)
		all = append(all, compression{[]byte{0x50 | n, 0x2a, 0x4d, 0x18}, zstandard})
	}
	return all
}

func zstandard(r *bufio.Reader, _ expansion) (io.Reader, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
}

// maxWindow is the most memory that the decoder of Zstandard keeps of the file, the limit of the
// program zstd.
const maxWindow = 128 << 20

// decompress returns the tar inside an image file. A file of none of the compressed formats
// is read as a plain tar. E is of the same file.
func decompress(file io.Reader, e expansion) (io.Reader, error) {
	in := bufio.NewReaderSize(file, 256<<10)
	start, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read image: %w", err)
	}
	for _, c := range compressions() {
		if !bytes.HasPrefix(start, c.magic) {
			continue
		}
		out, err := c.open(in, e)
		if err != nil {
			return nil, fmt.Errorf("decompress image: %w", err)
		}
		return out, nil
	}
	return in, nil
}
