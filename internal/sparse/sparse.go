// Package sparse writes files with holes, and finds them in archives: a file of a few bytes there may claim terabytes
// of zeros.
package sparse

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
)

// Is reports whether an entry of an archive is a sparse file, of which the archive does not have the holes.
func Is(header *tar.Header) bool {
	for record := range header.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return true
		}
	}
	return header.Typeflag == tar.TypeGNUSparse
}

// hole is the size of a part of a file that becomes a hole if it has nothing but zeros: no file system has larger
// blocks, but for file systems that store zeros well.
const hole = 4 << 10

// BufferSize is the size of Write's buffer.
const BufferSize = 64 * hole

// Write writes the content into a new file, which is empty, with holes for zeros. It does not close the file. A caller
// that writes many files passes a buffer for all of them, of BufferSize; with nil, Write makes one.
func Write(file *os.File, content io.Reader, buffer []byte) error {
	if buffer == nil {
		buffer = make([]byte, BufferSize)
	}
	for at, end := int64(0), int64(0); ; { // end: of what is written
		n, err := io.ReadFull(content, buffer)
		for data := buffer[:n]; len(data) > 0; {
			part, zero := firstPart(data)
			if !zero {
				if _, err := file.WriteAt(part, at); err != nil {
					return err
				}
				end = at + int64(len(part))
			}
			at, data = at+int64(len(part)), data[len(part):]
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return err
		case end < at:
			return file.Truncate(at)
		default:
			return nil
		}
	}
}

// Data returns how many bytes of a content, from a block's start on, Write writes.
func Data(content []byte) (n int) {
	for len(content) > 0 {
		part, zero := firstPart(content)
		if !zero {
			n += len(part)
		}
		content = content[len(part):]
	}
	return n
}

// firstPart returns the longest beginning of data with blocks that are all zero, or all not.
func firstPart(data []byte) (part []byte, zero bool) {
	var zeros [hole]byte
	for at := 0; at < len(data); at += hole {
		block := data[at:min(at+hole, len(data))]
		switch is := bytes.Equal(block, zeros[:len(block)]); {
		case at == 0:
			zero = is
		case is != zero:
			return data[:at], zero
		}
	}
	return data, zero
}
