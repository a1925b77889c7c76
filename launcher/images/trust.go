package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"kurma.io/stager/build"
	"kurma.io/stager/signing"

	"golang.org/x/sys/unix"
)

// ErrUnsigned says that an image has no signature.
var ErrUnsigned = errors.New("not signed")

// TrustStager returns why an image must not be run as a stager, or nil: it must
// have an exec and no dependencies, have a good signature by a key of the ring, and be
// unchanged since the import, its manifest included.
func (s *Store) TrustStager(image *Image, ring signing.KeyRing) error {
	_, err := s.Verify(image, ring)
	switch {
	case len(image.Manifest.Dependencies) > 0:
		err = errors.New("dependencies, which a stager cannot have")
	case image.Manifest.App == nil || len(image.Manifest.App.Exec) == 0:
		err = errors.New("no app with an exec")
	}
	if err != nil {
		return fmt.Errorf("stager image %s (%s): %w", image.Manifest.Name, shortID(image), err)
	}
	return nil
}

// trustPlugin returns why an image must not be run as a network plugin, or nil: it must have an app. It and its
// dependencies must each have a good signature by a key of the ring, and be unchanged since their imports, their
// manifests included. A plugin has the powers of the host's root, so it is trusted as a stager is.
func (c *Catalog) trustPlugin(image *Image) error {
	err := c.trustLayers(image)
	if err == nil && image.Manifest.App == nil {
		err = errors.New("no app")
	}
	if err != nil {
		return fmt.Errorf("plugin image %s (%s): %w", image.Manifest.Name, shortID(image), err)
	}
	return nil
}

// trustLayers checks an image before it looks for its dependencies.
func (c *Catalog) trustLayers(top *Image) error {
	if _, err := c.store.Verify(top, c.ring); err != nil {
		return err
	}
	order, err := c.Layers(top)
	if err != nil {
		return err
	}
	for _, image := range order[1:] {
		if _, err := c.store.Verify(image, c.ring); err != nil {
			return fmt.Errorf("dependency %s (%s): %w", image.Manifest.Name, shortID(image), err)
		}
	}
	return nil
}

// Verify returns the fingerprint of the key that has signed an image, see Signer, and also
// checks that the image's files have not changed since the import.
func (s *Store) Verify(image *Image, ring signing.KeyRing) (keyFingerprint string, err error) {
	signer, err := s.Signer(image, ring)
	if err != nil {
		return "", err
	}
	return signer, checkSeal(image)
}

// checkSeal returns an error if a signed image's files have changed since the import. It reads none.
func checkSeal(image *Image) error {
	now, err := seal(image.Rootfs())
	if err != nil {
		return err
	}
	if now != image.Record.Seal {
		return errors.New("files altered since the import; remove the image and import it again")
	}
	return nil
}

// Signer returns the fingerprint of the key that has signed an image's file and manifest, by
// the keys of the ring that are trusted for the image's name, and the time, as they are now.
// The error is ErrUnsigned for an image without a signature. It does not look at the image's
// files, see Verify.
//
// Nothing that was found before counts, but one thing: to read the signed file at every launch
// would take longer than the launch, so the import stores the state of the hash after the
// file, and seals manifest, file and signature (see sealFile). While the seal is unbroken,
// Signer checks the signature with that state, in a fifth of a millisecond. If the seal is
// broken, it reads the file again and compares the manifest with the one inside.
func (s *Store) Signer(image *Image, ring signing.KeyRing) (keyFingerprint string, err error) {
	if image.Record.Seal == "" {
		return "", ErrUnsigned
	}
	head, err := sealHead(image.Dir)
	if err != nil {
		return "", err
	}
	ring = ring.For(image.Manifest.Name)
	if image.Record.Head == nil || image.Record.Head.Seal != head {
		return s.readAgain(image, head, ring)
	}
	return checkSignature(image.Dir, image.Record.Head.Digests, ring)
}

// checkSignature checks the signature in an image's folder.
func checkSignature(dir string, digests signing.Digests, ring signing.KeyRing) (keyFingerprint string, err error) {
	sig, err := os.Open(filepath.Join(dir, sigFile))
	if err != nil {
		return "", err
	}
	defer sig.Close()
	return signing.Check(ring, digests, sig)
}

// Head is what an import stores of a signed image besides its files.
type Head struct {
	Seal    string          `json:"seal"` // of manifest, file and signature, see sealHead
	Digests signing.Digests `json:"digests"`
}

// readAgain is Signer for an image with a broken seal: it reads the kept file and
// checks that signature, ID and manifest are its own. It stores the digests with the seal
// that was made before.
func (s *Store) readAgain(image *Image, seal string, ring signing.KeyRing) (keyFingerprint string, err error) {
	digests, err := digestsOf(image.Dir)
	if err != nil {
		return "", err
	}
	signer, err := checkSignature(image.Dir, digests, ring)
	if err != nil {
		return "", err
	}
	file, err := os.Open(filepath.Join(image.Dir, aciFile))
	if err != nil {
		return "", err
	}
	defer file.Close()
	id, signed, err := fileID(file)
	if err != nil {
		return "", err
	}
	if id != image.ID {
		return "", errors.New("signed file belongs to another image")
	}
	if !bytes.Equal(signed, image.Manifest.Raw) {
		return "", errors.New("manifest altered since the import; remove the image and import it again")
	}
	lock, err := s.lockStore(unix.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	image.Record.Head = &Head{Seal: seal, Digests: digests}
	return signer, writeRecord(image.Dir, image.Record)
}

// fileID returns the ID of an image file and the manifest in it.
func fileID(file io.Reader) (id string, manifest []byte, err error) {
	in, err := Decompress(file)
	if err != nil {
		return "", nil, err
	}
	archive := build.NewArchive(in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", nil, fmt.Errorf("read image: %w", err)
		}
		if name, err := cleanName(header.Name); err != nil || name != manifestFile {
			continue
		}
		if manifest, err = io.ReadAll(io.LimitReader(archive, maxManifest)); err != nil {
			return "", nil, fmt.Errorf("read image: %w", err)
		}
	}
	return archive.ID(), manifest, nil
}

// digestsOf reads the file kept in an image's folder.
func digestsOf(dir string) (signing.Digests, error) {
	file, err := os.Open(filepath.Join(dir, aciFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sig, err := os.Open(filepath.Join(dir, sigFile))
	if err != nil {
		return nil, err
	}
	defer sig.Close()
	return signing.Hash(file, sig)
}

// sealHead returns a checksum of the state of an image's manifest, file and signature.
func sealHead(dir string) (string, error) {
	sum := sha256.New()
	for _, name := range []string{manifestFile, aciFile, sigFile} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("seal image: %w", err)
		}
		if err := sealFile(sum, name, info); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sealUnsigned is sealSame for the store's image of that ID and a signed import of it in from. It returns "" if there
// is none, or it is signed already. It reads all files, so no lock is held.
func (s *Store) sealUnsigned(from, id string) (string, error) {
	fresh, err := readRecord(from)
	if err != nil || fresh.Head == nil {
		return "", err
	}
	old, err := s.Get(id)
	if err != nil || old.Record.Seal != "" {
		return "", nil // adoptAgain returns the error
	}
	return sealSame(old.Rootfs(), filepath.Join(from, rootfsDir))
}

// sealSame seals the files of root if they are the same as those of a fresh
// extraction, and refuses if they are not.
func sealSame(root, fresh string) (string, error) {
	sealed, err := seal(root) // first: a change while we compare breaks it
	if err != nil {
		return "", err
	}
	have, err := content(root)
	if err != nil {
		return "", err
	}
	want, err := content(fresh)
	if err != nil {
		return "", err
	}
	if have != want {
		return "", errors.New("the unsigned image of this ID has been altered since the import; remove it first")
	}
	return sealed, nil
}

// content returns a checksum of a folder's files and their contents.
func content(root string) (string, error) {
	entries, err := build.Tree(root, true)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, e := range entries {
		source := e.Source
		e.Source = ""
		if _, err := fmt.Fprintf(sum, "%#v\n", e); err != nil {
			return "", err
		}
		if e.Type != tar.TypeReg {
			continue
		}
		if err := copyInto(source, sum); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// seal returns a checksum of the state of a folder's files without reading them.
func seal(root string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return sealFile(sum, path[len(root):], info)
	})
	if err != nil {
		return "", fmt.Errorf("seal image: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sealFile adds the state of a file to a checksum: name, inode number, size, mode, owner and
// change time. The kernel sets a file's change time at every change of content or metadata,
// and no system call sets it back, so a write to a file, or its replacement, breaks the
// seal. Copying the store also breaks it; the images must be imported again then.
func sealFile(sum io.Writer, name string, info fs.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	_, err := fmt.Fprintf(sum, "%q %d %d %o %d %d %d %d.%d\n",
		name, st.Ino, st.Size, st.Mode, st.Uid, st.Gid, st.Rdev, st.Ctim.Sec, st.Ctim.Nsec)
	return err
}
