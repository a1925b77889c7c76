package images

import (
	"archive/tar"
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
)

// TrustStager returns why an image must not be run as a stager, or nil: it must
// have an exec and no dependencies, have a signature by a key of the ring, and be
// unchanged since the import.
//
// The signature is of the imported file, not of the files extracted from it. To verify
// it at every launch would take longer than the launch, so the import does it once: it
// stores the fingerprint of the key whose signature it has verified, and seals the extracted
// files (see seal). A launch checks that the key is still in the ring, neither revoked nor
// expired, and that the seal is unbroken; both take well below a millisecond. If no
// fingerprint is stored, or its key is no longer in the ring, ID and signature of the kept
// file are verified with the ring as it is now.
func (s *Store) TrustStager(image *Image, ring signing.KeyRing) error {
	err := s.trust(image, ring)
	switch {
	case len(image.Manifest.Dependencies) > 0:
		err = errors.New("it has dependencies, which a stager cannot have")
	case image.Manifest.App == nil || len(image.Manifest.App.Exec) == 0:
		err = errors.New("it has no app with an exec")
	}
	if err != nil {
		return fmt.Errorf("stager image %s (%s): %w", image.Manifest.Name, image.ID[:len(idPrefix)+12], err)
	}
	return nil
}

// TrustPlugin returns why an image must not be run as a network plugin, or nil: it must have an
// app and no dependencies, have a signature by a key of the ring, and be unchanged since the
// import. A plugin has the powers of the host's root, so it is trusted as a stager is.
func (s *Store) TrustPlugin(image *Image, ring signing.KeyRing) error {
	err := s.trust(image, ring)
	switch {
	case len(image.Manifest.Dependencies) > 0:
		err = errors.New("it has dependencies, which are not signed with it")
	case image.Manifest.App == nil:
		err = errors.New("it has no app")
	}
	if err != nil {
		return fmt.Errorf("plugin image %s (%s): %w", image.Manifest.Name, image.ID[:len(idPrefix)+12], err)
	}
	return nil
}

// trust returns why an image is not to be trusted, or nil: see TrustStager.
func (s *Store) trust(image *Image, ring signing.KeyRing) error {
	if image.Record.Seal == "" {
		return errors.New("it is not signed")
	}
	now, err := seal(image.Rootfs())
	if err != nil {
		return err
	}
	if now != image.Record.Seal {
		return errors.New("its files have been altered since it was imported; remove it and import it again")
	}
	if image.Record.SignedBy != "" && ring.Trusts(image.Record.SignedBy) {
		return nil
	}
	return s.verifyAgain(image, ring)
}

// verifyAgain verifies the kept file and stores who signed it.
func (s *Store) verifyAgain(image *Image, ring signing.KeyRing) error {
	signer, err := verifyFile(image.Dir, ring)
	if err != nil {
		return err
	}
	if !ring.Trusts(signer) {
		return signing.ErrUnknownKey
	}
	if err := s.checkID(image); err != nil {
		return err
	}
	image.Record.SignedBy = signer
	return writeRecord(image.Dir, image.Record)
}

// checkID returns an error unless the kept file is the one that the image's files were
// extracted from.
func (s *Store) checkID(image *Image) error {
	file, err := os.Open(filepath.Join(image.Dir, aciFile))
	if err != nil {
		return err
	}
	defer file.Close()
	id, err := fileID(file)
	if err != nil {
		return err
	}
	if id != image.ID {
		return errors.New("its signed file belongs to another image")
	}
	return nil
}

// verifyFile checks the signature of the file kept in an image's folder.
func verifyFile(dir string, ring signing.KeyRing) (string, error) {
	file, err := os.Open(filepath.Join(dir, aciFile))
	if err != nil {
		return "", err
	}
	defer file.Close()
	sig, err := os.Open(filepath.Join(dir, sigFile))
	if err != nil {
		return "", err
	}
	defer sig.Close()
	return signing.Verify(ring, file, sig)
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
		return "", errors.New("the unsigned image of this ID has been altered since it was imported; remove it first")
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
		if err := copyTo(sum, source); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func copyTo(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}

// seal returns a checksum of the state of a folder's files without reading them: of names,
// inode numbers, sizes, modes, owners and change times. The kernel sets a file's change
// time at every change of content or metadata, and no system call sets it back, so a write
// to a file, or its replacement, breaks the seal. Copying the store also breaks it; the
// images must be imported again then.
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
		st := info.Sys().(*syscall.Stat_t)
		_, err = fmt.Fprintf(sum, "%q %d %d %o %d %d %d %d.%d\n",
			path[len(root):], st.Ino, st.Size, st.Mode, st.Uid, st.Gid, st.Rdev, st.Ctim.Sec, st.Ctim.Nsec)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("seal image: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
