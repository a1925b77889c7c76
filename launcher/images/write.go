package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"kurma.io/stager/internal/aside"
	"kurma.io/stager/signing"

	"golang.org/x/sys/unix"
)

// Writer writes an image, see Store.Write.
type Writer struct {
	extractor *extractor
	archive   *tar.Writer
}

// Write imports an image with a manifest and the entries that write writes, which begin with that of the folder
// rootfs. It is the image that Import makes of a file with these entries in this order, with the same ID and the same
// limits; the file is never written. After an error of write or any other the store is as it was before.
func (s *Store) Write(manifest []byte, write func(*Writer) error) (*Image, error) {
	return s.bring(signing.KeyRing{}, func(dir string) (string, error) {
		sum := aside.NewHash(sha512.New())
		defer sum.Close()
		record, err := writeImage(dir, sum, manifest, write)
		if err != nil {
			return "", err
		}
		return idPrefix + hex.EncodeToString(sum.Sum()), writeRecord(dir, record)
	})
}

// writeImage is Write into an empty folder, and of the file into archive.
func writeImage(dir string, archive io.Writer, manifest []byte, write func(*Writer) error) (Record, error) {
	x, err := newExtractor(dir)
	if err != nil {
		return Record{}, err
	}
	defer x.tree.close()
	w := &Writer{x, tar.NewWriter(archive)}
	header := tar.Header{Typeflag: tar.TypeReg, Name: manifestFile, Mode: 0o644, Size: int64(len(manifest))}
	err = w.Entry(header, bytes.NewReader(manifest))
	if err == nil {
		err = write(w)
	}
	if err == nil {
		err = errors.Join(x.check(), w.archive.Close(), x.finish())
	}
	return Record{Imported: time.Now().UTC(), Size: x.size, Inodes: x.inodes()}, err
}

// Entry writes an entry of the image's archive, whose name begins with rootfs. Of a file, content has the size that the
// header says. The archive has PAX records where they are needed.
func (w *Writer) Entry(header tar.Header, content io.Reader) error {
	header.Format = tar.FormatPAX
	if header.ModTime.IsZero() { // as the archive has it
		header.ModTime = time.Unix(0, 0)
	}
	err := w.archive.WriteHeader(&header)
	if err == nil {
		err = w.extractor.extract(&header, io.TeeReader(content, w.archive))
	}
	if err != nil {
		return fmt.Errorf("extract %q: %w", shorten(header.Name), err)
	}
	return nil
}

// Readlink returns the target of the symbolic link that the image has at a path in rootfs so far, "" without one.
func (w *Writer) Readlink(name string) string {
	parent, err := w.extractor.tree.find(path.Dir(name))
	if err != nil {
		return ""
	}
	defer unix.Close(parent)
	target, err := readLink(parent, path.Base(name))
	if err != nil {
		return ""
	}
	return target
}

// Folder returns the header of the folder that the image has at a path in rootfs so far, without its extended
// attributes. The error is fs.ErrNotExist if the image has nothing there, and unix.ENOTDIR if it has something else
// there or on the way.
func (w *Writer) Folder(name string) (header tar.Header, err error) {
	parent, err := w.extractor.tree.find(path.Dir(name))
	if errors.Is(err, unix.ELOOP) {
		err = unix.ENOTDIR
	}
	if err != nil {
		return header, err
	}
	defer unix.Close(parent)
	var st unix.Stat_t
	if err := unix.Fstatat(parent, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return header, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return header, unix.ENOTDIR
	}
	header = tar.Header{
		Typeflag: tar.TypeDir, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(0, 0),
	}
	if times, listed := w.extractor.folders[name]; listed {
		header.ModTime = time.Unix(times[1].Unix())
	}
	return header, nil
}
