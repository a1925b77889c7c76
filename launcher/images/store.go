// Package images keeps App Container images on disk, extracted. It resolves the layers
// of an app and checks that a stager image can be trusted.
//
// On disk, below the store's folder (mode 0700, root's):
//
//	sha512-HEX/        one image, named by its ID
//	    manifest       the image manifest, byte for byte
//	    rootfs/        its files
//	    record.json    when it was imported, and seals of a signed image (Record)
//	    image.aci      of a signed image only: the file as it was imported
//	    image.aci.asc  its signature
//	.tmp-…/            an import or removal that runs, or one that was killed
//	.lock              taken for short times, see lockStore
//	.imports           locked while an import runs, see Importing
//
// The folder itself is locked while a process needs the images in it, see Pin, and that of an image while an import
// needs the image, see Keep.
//
// An image appears under its ID by one rename, complete, and disappears by one:
// an import or removal that is killed never leaves a partial image. Several
// processes may use a store at once.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/jsonfile"

	"golang.org/x/sys/unix"
)

// ErrNotFound says that the store does not have the image.
var ErrNotFound = errors.New("no such image")

const (
	idPrefix     = "sha512-"
	idLength     = len(idPrefix) + 128
	tempPrefix   = ".tmp-"
	manifestFile = "manifest"
	rootfsDir    = "rootfs"
	recordFile   = "record.json"
	aciFile      = "image.aci"
	sigFile      = "image.aci.asc"
)

// Store is a folder of images.
type Store struct {
	dir string
}

// Image is one image of a store.
type Image struct {
	ID       string // sha512- and 128 hexadecimal digits
	Dir      string // the image's folder
	Manifest *Manifest
	Record   Record

	// Damage is why Manifest and Record cannot be read, nil for an image that can be
	// used. Only List returns damaged images.
	Damage error
}

// Rootfs returns the folder of the image's files.
func (i *Image) Rootfs() string { return filepath.Join(i.Dir, rootfsDir) }

// Record is what an import stores with an image.
type Record struct {
	Imported time.Time `json:"imported"`
	Size     int64     `json:"size"` // bytes of the files' content
	// Inodes are those of the archive's files and folders; 0 for an image of a version that did not count them.
	Inodes int64 `json:"inodes,omitempty"`

	// Unmarked says that the archive had no end marker, see build.Archive.
	Unmarked bool `json:"unmarked,omitempty"`

	// Number counts the imports of a store, so that the order of imports does not follow
	// the clock.
	Number int64 `json:"number"`

	// Seal is the state of a signed image's files after they were extracted, see seal. It is
	// "" for an image without a signature.
	Seal string `json:"seal,omitempty"`
	// Head is about a signed image's manifest, file and signature.
	Head *Head `json:"head,omitempty"`
}

// Open returns the store in a folder, an absolute path. The folder is made when it is needed.
func Open(dir string) *Store { return &Store{dir: dir} }

// List returns all images, the latest import first, and damaged images at the end, of
// which only ID, Dir and Damage are set. An image that cannot be read now and is not damaged is an error, see
// jsonfile.IsDamage: nobody knows which layers it needs.
func (s *Store) List() ([]*Image, error) {
	sound, damaged, err := s.list()
	return append(sound, damaged...), err
}

func (s *Store) list() (sound, damaged []*Image, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list images: %w", err)
	}
	for _, e := range entries {
		if !isID(e.Name()) {
			continue
		}
		image, err := s.read(e.Name())
		switch {
		case errors.Is(err, ErrNotFound): // removed since
		case err != nil:
			return nil, nil, err
		case image.Damage != nil:
			damaged = append(damaged, image)
		default:
			sound = append(sound, image)
		}
	}
	slices.SortFunc(sound, latestFirst)
	return sound, damaged, nil
}

// Get returns the image with that complete ID, or ErrNotFound. A damaged image is an
// error.
func (s *Store) Get(id string) (*Image, error) {
	if !isID(id) {
		return nil, fmt.Errorf("%q is not an image ID (sha512- and 128 hexadecimal digits)", id)
	}
	image, err := s.read(id)
	if err != nil {
		return nil, err
	}
	if image.Damage != nil {
		return nil, fmt.Errorf("image %s is damaged, remove it and import it again: %w", id, image.Damage)
	}
	return image, nil
}

// Has reports whether the store has an image with that ID, damaged or not.
func (s *Store) Has(id string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, id))
	return isID(id) && !errors.Is(err, fs.ErrNotExist)
}

// read reads an image, damaged or not, or returns ErrNotFound if it is not there.
func (s *Store) read(id string) (*Image, error) {
	dir := filepath.Join(s.dir, id)
	manifest, err := readManifest(dir)
	if err != nil {
		return unreadImage(id, dir, err)
	}
	record, err := readRecord(dir)
	if err != nil {
		return unreadImage(id, dir, err)
	}
	return &Image{ID: id, Dir: dir, Manifest: manifest, Record: record}, nil
}

// unreadImage returns what is known of an image that was not read because of err.
func unreadImage(id, dir string, err error) (*Image, error) {
	if _, dirErr := os.Lstat(dir); errors.Is(dirErr, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if !jsonfile.IsDamage(err) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read image %s: %w", id, err)
	}
	return &Image{ID: id, Dir: dir, Damage: err}, nil
}

func readManifest(dir string) (*Manifest, error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	return parseManifest(data)
}

// number gives an image the number after the highest in the store.
func (s *Store) number(dir string) error {
	sound, _, err := s.list()
	if err != nil {
		return err
	}
	record, err := readRecord(dir)
	if err != nil {
		return err
	}
	for _, image := range sound {
		record.Number = max(record.Number, image.Record.Number+1)
	}
	return writeRecord(dir, record)
}

// latestFirst orders images by their imports.
func latestFirst(a, b *Image) int {
	return cmp.Or(cmp.Compare(b.Record.Number, a.Record.Number), b.Record.Imported.Compare(a.Record.Imported),
		strings.Compare(a.ID, b.ID))
}

// Pin prevents the removal of images until release is called: Remove waits until then.
func (s *Store) Pin() (release func(), err error) {
	dir, err := s.lockImages(unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return func() { _ = dir.Close() }, nil
}

// lockImages takes the lock on the store's folder, which protects the images from
// removal. It needs no write access to the store.
func (s *Store) lockImages(how int) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make image store: %w", err)
	}
	dir, err := LockFolder(s.dir, how)
	if err != nil {
		return nil, fmt.Errorf("lock images: %w", err)
	}
	return dir, nil
}

// LockFolder takes the lock of a folder, as flock(2) does for how, until the file is closed. It writes nothing.
func LockFolder(path string, how int) (*os.File, error) { return openLock(path, os.O_RDONLY, how) }

// openLock opens a file or folder and takes its lock, as LockFolder does.
func openLock(path string, flags, how int) (*os.File, error) {
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Take(file, how); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// removeInterval is how often awaitUnpinned looks whether images are pinned.
const removeInterval = 10 * time.Millisecond

// awaitUnpinned takes the lock on the store's folder, alone. Whoever holds a pin may wait long: for a file system of
// the network, or for another process of ours. So the wait ends with ctx.
func (s *Store) awaitUnpinned(ctx context.Context) (*os.File, error) {
	for {
		dir, err := s.lockImages(unix.LOCK_EX | unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return dir, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("images are in use: %w", context.Cause(ctx))
		case <-time.After(removeInterval):
		}
	}
}

// Remove removes the images that choose returns, of all that the store has, one after the other, and returns them.
// Choose is called while no process has pinned the images or removes others; Remove waits for that until ctx ends. It
// must not return an image that an import keeps. A removal that is killed has removed the first ones.
func (s *Store) Remove(
	ctx context.Context, choose func(all []*Image, imports Imports) ([]*Image, error),
) ([]*Image, error) {
	var aside []*tempDir
	defer func() { // without the lock: it may take long
		for _, temp := range aside {
			temp.discard()
		}
	}()
	lock, err := s.awaitUnpinned(ctx)
	if err != nil {
		return nil, fmt.Errorf("remove image: %w", err)
	}
	defer lock.Close()
	imports, importing := s.lockFile(".imports", unix.LOCK_EX|unix.LOCK_NB)
	if importing == nil {
		defer imports.Close()
	}
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	chosen, err := choose(all, Imports{Running: importing != nil})
	if err != nil {
		return nil, err
	}
	for i, image := range chosen {
		temp, err := s.setAside(image.Dir)
		if err != nil {
			return chosen[:i], fmt.Errorf("remove image: %w", err)
		}
		aside = append(aside, temp)
	}
	return chosen, nil
}

// isID reports whether a name has the form of an image ID, so that it is not a path that
// leads out of the store.
func isID(name string) bool {
	hex, ok := strings.CutPrefix(name, idPrefix)
	return ok && len(name) == idLength && strings.Trim(hex, "0123456789abcdef") == ""
}
