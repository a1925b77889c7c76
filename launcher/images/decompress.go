package images

import (
	"bufio"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip" // faster than the standard library's
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxWindow is the most that the decoder of Zstandard keeps of the file, in bytes. The libraries of tools that make
// images use up to 32 MiB, and the program zstd up to level 20; its level 22 and --long are not for images.
const maxWindow = 32 << 20

// The beginnings of files of xz, and of Zstandard's frames (RFC 8878, 3.1).
const (
	xzMagic   = "\xfd7zXZ\x00"
	zstdMagic = "\x28\xb5\x2f\xfd"
	zstdSkips = "\x2a\x4d\x18" // after a byte 0x50 to 0x5f: a skippable frame, as pzstd begins
)

func isXZ(start string) bool { return strings.HasPrefix(start, xzMagic) }

func isZstandard(start string) bool {
	return strings.HasPrefix(start, zstdMagic) || strings.Index(start, zstdSkips) == 1 && start[0]>>4 == 5
}

// ChoosesMemory reads the start of a file, and reports whether its compression lets it choose how much memory a decoder
// takes: xz and Zstandard do. A file that cannot be read chooses nothing.
func ChoosesMemory(file io.Reader) bool {
	start := make([]byte, len(xzMagic))
	n, _ := io.ReadFull(file, start) // what fails here fails again when the file is decoded
	return isXZ(string(start[:n])) || isZstandard(string(start[:n]))
}

// decompress returns the tar inside an image file, whose first bytes say how it is compressed. A file of none of the
// compressed formats is read as a plain tar. It also returns how far the tar may expand.
func decompress(file *counter) (io.Reader, expansion, error) {
	e := expansion{file, freeBytes}
	in := bufio.NewReaderSize(file, 256<<10)
	start, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, e, fmt.Errorf("read image: %w", err)
	}
	var out io.Reader
	switch head := string(start); {
	case strings.HasPrefix(head, "\x1f\x8b"):
		out, err = gzip.NewReader(in)
	case strings.HasPrefix(head, "BZh"):
		e.free = slowBytes
		return bzip2.NewReader(in), e, nil
	case isXZ(head):
		e.free = slowBytes
		out, err = xz.NewReader(guardXZ(in, e))
	case isZstandard(head):
		out, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
			zstd.WithDecoderLowmem(true))
	default:
		return in, e, nil
	}
	if err != nil {
		return nil, e, fmt.Errorf("decompress image: %w", err)
	}
	return out, e, nil
}
