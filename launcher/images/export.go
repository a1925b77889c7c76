package images

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"kurma.io/stager/build"

	"github.com/klauspost/compress/zstd"
)

// Compression is how a file that is built of an image is compressed. The ID does not depend on it.
type Compression string

// The compressions. An image that is not compressed is written at the speed of the disk.
const (
	NotCompressed Compression = "none"
	Zstandard     Compression = "zstd"
	Gzip          Compression = "gzip"
)

// Compressions returns all compressions, the default first.
func Compressions() []string { return []string{string(NotCompressed), string(Zstandard), string(Gzip)} }

// write writes an image.
func (c Compression) write(to io.Writer, document []byte, entries []build.Entry) error {
	switch c {
	case Gzip:
		return build.Write(to, document, entries)
	case Zstandard:
		out, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return err
		}
		return errors.Join(build.WriteTar(out, document, entries), out.Close())
	default:
		return build.WriteTar(to, document, entries)
	}
}

// Export writes an image into a new file that Import takes, and returns the file's ID: the file that was
// imported if the store has kept it, as it does for a signed image, with the signature; otherwise one that is
// built of the image's manifest and files, with another ID unless the imported file was
// built in the same way. signature is nil if there is none; its writer is made only for a kept
// signature.
func (s *Store) Export(
	image *Image, to *os.File, as Compression, signature func() (io.WriteCloser, error),
) (id string, err error) {
	if err := copyInto(filepath.Join(image.Dir, aciFile), to); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return "", fmt.Errorf("export image %s: %w", image.ID, err)
		}
		return image.ID, exportSignature(image, signature)
	}
	entries, err := build.Tree(image.Rootfs(), true)
	if err != nil {
		return "", fmt.Errorf("export image %s: %w", image.ID, err)
	}
	return exportBuilt(image, image.Manifest.Raw, entries, to, as)
}

// exportBuilt writes an ACI and returns its ID.
func exportBuilt(
	image *Image, document []byte, entries []build.Entry, to *os.File, as Compression,
) (id string, err error) {
	err = as.write(to, document, entries)
	if err == nil {
		_, err = to.Seek(0, io.SeekStart)
	}
	if err == nil {
		id, _, err = fileID(to)
	}
	if err != nil {
		return "", fmt.Errorf("export image %s: %w", image.ID, err)
	}
	return id, nil
}

func exportSignature(image *Image, signature func() (io.WriteCloser, error)) error {
	path := filepath.Join(image.Dir, sigFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to, err := signature()
	if err != nil {
		return err
	}
	return errors.Join(copyInto(path, to), to.Close())
}

func copyInto(path string, to io.Writer) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return err
}
