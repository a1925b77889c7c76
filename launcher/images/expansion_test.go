package images

import (
	"archive/tar"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// An archive of random bytes does not expand, whatever was read of it when a header says how large its file is: of a
// layer that is written while it is read, nothing but the header.
func TestALargeFileMayBeTheFirst(t *testing.T) {
	t.Setenv("TMPDIR", memoryDir(t))
	s := newStore(t)
	for name, tt := range map[string]struct {
		size int64
		read func(in io.Reader) error
	}{
		"layer": {200 << 20, func(in io.Reader) error { _, err := s.ImportStream(t.Context(), in); return err }},
		"file":  {400 << 20, func(in io.Reader) error { _, _, err := unpack(t.TempDir(), in); return err }},
	} {
		out, in := io.Pipe()
		go func() { _ = in.CloseWithError(writeLarge(in, tt.size)) }()
		if err := tt.read(out); err != nil {
			t.Errorf("a %s that begins with a file of %d bytes: %v", name, tt.size, err)
		}
		_ = out.Close()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	}
}

// writeLarge writes an image with one file, of so many random bytes.
func writeLarge(out io.Writer, size int64) error {
	w := tar.NewWriter(out)
	entry := func(name string, content io.Reader, size int64) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: size}); err != nil {
			return err
		}
		_, err := io.CopyN(w, content, size)
		return err
	}
	return errors.Join(entry("manifest", strings.NewReader(testManifest), int64(len(testManifest))),
		entry("rootfs/large", rand.NewChaCha8([32]byte{}), size), w.Close())
}
