package sources

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"kurma.io/stager/internal/aside"
	"kurma.io/stager/launcher/images"
)

// blob is what is known of a file.
type blob struct {
	digest string // "sha256:HEX" that it must have; "" for any
	size   int64  // that it must have; -1 for any
}

// read reads a layer's file, plain or compressed, once: use reads its archive, meanwhile the digests of the file and of
// its content are computed, and read returns an error at the end if they are others. Without use, it is read for the
// digests alone. What use has made of a layer counts only if read returns nil.
func (b blob) read(
	ctx context.Context, file io.ReadSeeker, diffID string, use func(*images.Stream, *tar.Reader) error,
) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	packed := newDigester(images.Until(ctx, file))
	err := readContent(packed, diffID, use)
	if fileErr := packed.check(b); fileErr != nil {
		return fileErr // of another file nothing else is to be said
	}
	return err
}

// readContent decompresses a layer's file in one goroutine, hashes its content in another, and calls use.
func readContent(file io.Reader, diffID string, use func(*images.Stream, *tar.Reader) error) error {
	in, err := images.Decompress(file)
	if err != nil {
		return err
	}
	stop := in.Ahead()
	defer stop()
	sum := aside.NewHash(sha256.New())
	defer sum.Close()
	all := io.TeeReader(in, sum)
	if use != nil {
		err = use(in, tar.NewReader(all))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, all)
	}
	if err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum()); got != diffID {
		return fmt.Errorf("the digest of its content is %s, not %s", got, diffID)
	}
	return nil
}

// digester computes the digest of what is read.
type digester struct {
	in   io.Reader
	sum  hash.Hash
	size int64
}

func newDigester(in io.Reader) *digester { return &digester{in: in, sum: sha256.New()} }

// Read implements io.Reader.
func (d *digester) Read(p []byte) (int, error) {
	n, err := d.in.Read(p)
	d.sum.Write(p[:n])
	d.size += int64(n)
	return n, err
}

// check reads to the end, and compares all that was read with a file.
func (d *digester) check(want blob) error {
	n, err := io.Copy(d.sum, d.in)
	if d.size += n; err != nil {
		return err
	}
	if want.size >= 0 && d.size != want.size {
		return fmt.Errorf("%d bytes, not %d", d.size, want.size)
	}
	if got := "sha256:" + hex.EncodeToString(d.sum.Sum(nil)); want.digest != "" && got != want.digest {
		return fmt.Errorf("digest %s, not %s", got, want.digest)
	}
	return nil
}
