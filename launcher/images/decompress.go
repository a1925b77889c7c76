package images

import (
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxWindow is the most memory that the decoder of Zstandard keeps of the file, the limit of the
// program zstd.
const maxWindow = 128 << 20

// decompress returns the tar inside an image file, whose first bytes say how it is compressed. A file of none of the
// compressed formats is read as a plain tar. E is of the same file.
func decompress(file io.Reader, e expansion) (io.Reader, error) {
	in := bufio.NewReaderSize(file, 256<<10)
	start, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read image: %w", err)
	}
	var out io.Reader
	switch head := string(start); {
	case strings.HasPrefix(head, "\x1f\x8b"):
		out, err = gzip.NewReader(in)
	case strings.HasPrefix(head, "BZh"):
		return bzip2.NewReader(in), nil
	case strings.HasPrefix(head, "\xfd7zXZ\x00"):
		out, err = xz.NewReader(guardXZ(in, e))
	case strings.HasPrefix(head, "\x28\xb5\x2f\xfd"),
		strings.Index(head, "\x2a\x4d\x18") == 1 && start[0]>>4 == 5: // a skippable frame, as pzstd begins (RFC 8878, 3.1.2)
		out, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	default:
		return in, nil
	}
	if err != nil {
		return nil, fmt.Errorf("decompress image: %w", err)
	}
	return out, nil
}
