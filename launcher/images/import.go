package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/signing"

	"golang.org/x/sys/unix"
)

// Import reads an image file, plain or compressed with gzip, bzip2, xz or Zstandard, and puts it into the store under
// its ID, the SHA-512 of the uncompressed tar. An image that the store already has stays as it is; if it has no
// signature, it gets this one's. It is an error if its manifest, or its files and it is signed, have been altered
// since. A detached signature is read from path + ".asc" if that file exists: a wrong signature is an error; one by a
// key that is not in the ring leaves the image untrusted. Import calls progress from time to time with the bytes read
// and the file's size; progress may be nil.
//
// After any error, and when ctx ends, the store is as it was before. Import changes nothing
// outside of the store, whatever is in the file. A power loss cannot leave a partial image.
func (s *Store) Import(ctx context.Context, path string, ring signing.KeyRing,
	progress func(done, size int64),
) (*Image, error) {
	image, err := s.importFile(ctx, path, ring, progress)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", path, err)
	}
	return image, nil
}

func (s *Store) importFile(ctx context.Context, path string, ring signing.KeyRing,
	progress func(done, size int64),
) (*Image, error) {
	file, size, err := openImage(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in := &meter{ctx: ctx, in: file, size: size, report: progress}
	return s.bring(ring, func(dir string) (string, error) { return unpackInto(dir, in, path+".asc", ring) })
}

// bring imports the image that unpack writes, with its record, into an empty folder, and whose ID it returns.
func (s *Store) bring(ring signing.KeyRing, unpack func(dir string) (id string, err error)) (*Image, error) {
	temp, err := s.newTemp()
	if err != nil {
		return nil, err
	}
	defer temp.discard()
	dir := filepath.Join(temp.dir, "image")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	id, err := unpack(dir)
	if err == nil {
		err = syncAll(dir)
	}
	if err != nil {
		return nil, err
	}
	return s.adopt(dir, id, ring)
}

// unpackInto writes an image into a folder as the store keeps it, with its signature if there is one, and returns its
// ID.
func unpackInto(dir string, in io.Reader, signature string, ring signing.KeyRing) (id string, err error) {
	signed, err := keepSignature(dir, signature)
	if err != nil {
		return "", err
	}
	id, record, err := unpackKept(dir, in, signed)
	if err != nil {
		return "", err
	}
	if signed {
		err = sealSigned(dir, ring, &record)
	}
	if err != nil {
		return "", err
	}
	return id, writeRecord(dir, record)
}

// syncAll writes everything of dir's file system to the disk, with one call for all of an
// image's files.
func syncAll(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := unix.Syncfs(int(folder.Fd())); err != nil {
		return fmt.Errorf("write image to disk: %w", err)
	}
	return nil
}

func openImage(path string) (*os.File, int64, error) {
	// O_NONBLOCK does not wait for a FIFO's writer, and has no effect on a regular file.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// unpack extracts an image file into dir and returns its ID.
func unpack(dir string, in io.Reader) (string, Record, error) {
	archive, err := Decompress(in)
	if err != nil {
		return "", Record{}, err
	}
	defer archive.Ahead()()
	id, record, err := extract(dir, archive)
	record.Imported = time.Now().UTC()
	return id, record, err
}

// keepSignature copies a signature into dir and reports whether there is one.
func keepSignature(dir, path string) (bool, error) {
	err := copyFile(filepath.Join(dir, sigFile), path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("keep signature: %w", err)
	}
	return true, nil
}

// unpackKept is unpack. If keep is set it also keeps the file, byte for byte as it was
// read: a signature of the kept file is one of the extracted files, even if another
// process changes the imported file meanwhile.
func unpackKept(dir string, in io.Reader, keep bool) (id string, record Record, err error) {
	if !keep {
		return unpack(dir, in)
	}
	kept, err := os.OpenFile(filepath.Join(dir, aciFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", Record{}, fmt.Errorf("keep signed file: %w", err)
	}
	all := io.TeeReader(in, kept)
	id, record, err = unpack(dir, all)
	if err == nil {
		_, err = io.Copy(io.Discard, all) // the signature also covers what follows the compressed data
	}
	return id, record, errors.Join(err, kept.Close())
}

// sealSigned seals an image with its file and signature in the store, and verifies the signature.
func sealSigned(dir string, ring signing.KeyRing, record *Record) (err error) {
	if record.Seal, err = seal(filepath.Join(dir, rootfsDir)); err != nil {
		return err
	}
	if record.Head, err = newHead(dir); err != nil {
		return err
	}
	manifest, err := readManifest(dir)
	if err != nil {
		return err
	}
	_, err = checkSignature(dir, record.Head.Digests, ring.For(manifest.Name))
	if errors.Is(err, signing.ErrUnknownKey) {
		return nil
	}
	return err
}

func newHead(dir string) (*Head, error) {
	sealed, err := sealHead(dir)
	if err != nil {
		return nil, err
	}
	digests, err := digestsOf(dir)
	return &Head{Seal: sealed, Digests: digests}, err
}

func copyFile(to, from string) error {
	in, _, err := openImage(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// readRecord reads an image's record.
func readRecord(dir string) (record Record, err error) {
	err = jsonfile.Read(filepath.Join(dir, recordFile), &record)
	return record, err
}

// writeRecord replaces the record, also in a power loss. For an image in its place the caller has the store's lock.
func writeRecord(dir string, record Record) error {
	if err := jsonfile.WriteSynced(filepath.Join(dir, recordFile), record); err != nil {
		return fmt.Errorf("write image record: %w", err)
	}
	return nil
}

// adopt moves a complete image to its place and gives it the next number. If the store already
// has the image, that stays, because pods may use it, see adoptAgain.
func (s *Store) adopt(dir, id string, ring signing.KeyRing) (*Image, error) {
	sealed, err := s.sealUnsigned(dir, id)
	if err != nil {
		return nil, fmt.Errorf("put image in its place: image %s: %w", id, err)
	}
	release, err := s.Pin() // the image is not removed before it is read
	if err != nil {
		return nil, err
	}
	defer release()
	lock, err := s.lockStore(unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	place := filepath.Join(s.dir, id)
	switch _, err = os.Lstat(place); {
	case err == nil:
		err = s.adoptAgain(dir, id, sealed, ring)
	case errors.Is(err, fs.ErrNotExist):
		if err = s.number(dir); err == nil {
			err = os.Rename(dir, place)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("put image in its place: %w", err)
	}
	return s.Get(id)
}

// adoptAgain gives an image of the store what a new import of it in from has to add. It refuses one that
// a launch would refuse because it has been altered: whoever imports an image wants to run it. Sealed is what
// sealUnsigned has returned.
func (s *Store) adoptAgain(from, id, sealed string, ring signing.KeyRing) error {
	old, err := s.Get(id)
	if err != nil {
		return err
	}
	if old.Record.Seal != "" {
		err = checkSeal(old)
	}
	if err == nil {
		err = sameManifest(from, old.Dir)
	}
	if err == nil {
		err = adoptSignature(from, old, sealed, ring)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", id, err)
	}
	return nil
}

// adoptSignature gives an image the signature and file of the same image that was imported again. An image that has
// a signature keeps it unless the new one is good and by a trusted key. The files of an unsigned image have been
// compared, because no seal shows that they are unchanged, unless it was imported meanwhile. The record is written
// last: until then the image counts as unsigned, or its signature is checked with its file.
func adoptSignature(from string, old *Image, sealed string, ring signing.KeyRing) error {
	fresh, err := readRecord(from)
	if err != nil || fresh.Head == nil {
		return err
	}
	record := old.Record
	switch {
	case record.Seal != "":
		_, err = checkSignature(from, fresh.Head.Digests, ring.For(old.Manifest.Name))
	case sealed != "":
		record.Seal = sealed
		err = checkSeal(&Image{Dir: old.Dir, Record: record})
	default:
		record.Seal, err = sealSame(old.Rootfs(), filepath.Join(from, rootfsDir))
	}
	if errors.Is(err, signing.ErrUnknownKey) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range []string{aciFile, sigFile} {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(old.Dir, name)); err != nil {
			return err
		}
	}
	record.Head = fresh.Head
	if record.Head.Seal, err = sealHead(old.Dir); err != nil {
		return err
	}
	if err := sameManifest(from, old.Dir); err != nil {
		return err
	}
	return writeRecord(old.Dir, record)
}

// sameManifest returns an error if the manifests of an image and of a fresh extraction differ.
func sameManifest(fresh, place string) error {
	want, err := os.ReadFile(filepath.Join(fresh, manifestFile))
	if err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(place, manifestFile))
	if err == nil && !bytes.Equal(have, want) {
		err = errors.New("manifest altered since the import; remove the image and import it again")
	}
	return err
}
