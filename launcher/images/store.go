// Package images keeps App Container images on disk, extracted. It resolves the layers
// of an app and checks that a stager image can be trusted.
//
// On disk, below the store's folder (mode 0700, root's):
//
//	sha512-HEX/        one image, named by its ID
//	    manifest       the image manifest, byte for byte
//	    rootfs/        its files
//	    record.json    when it was imported and who signed it (Record)
//	    image.aci      of a signed image only: the file as it was imported
//	    image.aci.asc  its signature
//	.tmp-…/            an import or removal that runs, or one that was killed
//	.lock              taken for short times, see lockStore
//
// The folder itself is locked while a process needs the images in it, see Pin.
//
// An image appears under its ID by one rename, complete, and disappears by one:
// an import or removal that is killed never leaves a partial image. Several
// processes may use a store at once.
package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

	// Seal is the state of a signed image's files after they were extracted, see seal.
	Seal string `json:"seal,omitempty"`
	// SignedBy is the fingerprint of the primary key whose signature of the
	// file has been verified; "" for an unsigned image or an unknown key.
	SignedBy string `json:"signedBy,omitempty"`
}

// Open opens a store. It makes the store's folder if it is missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	return &Store{dir: dir}, nil
}

// List returns all images, the latest import first, and damaged images at the end, of
// which only ID, Dir and Damage are set.
func (s *Store) List() ([]*Image, error) {
	sound, damaged, err := s.list()
	return append(sound, damaged...), err
}

func (s *Store) list() (sound, damaged []*Image, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list images: %w", err)
	}
	for _, e := range entries {
		if !isID(e.Name()) {
			continue
		}
		image, err := s.read(e.Name())
		switch {
		case err != nil: // removed since
		case image.Damage != nil:
			damaged = append(damaged, image)
		default:
			sound = append(sound, image)
		}
	}
	slices.SortFunc(sound, func(a, b *Image) int { return b.Record.Imported.Compare(a.Record.Imported) })
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

// read reads an image, damaged or not, or returns ErrNotFound.
func (s *Store) read(id string) (*Image, error) {
	dir := filepath.Join(s.dir, id)
	manifest, err := readManifest(dir)
	if err != nil {
		return damagedImage(id, dir, err)
	}
	record, err := readRecord(dir)
	if err != nil {
		return damagedImage(id, dir, err)
	}
	return &Image{ID: id, Dir: dir, Manifest: manifest, Record: record}, nil
}

func damagedImage(id, dir string, damage error) (*Image, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return &Image{ID: id, Dir: dir, Damage: damage}, nil
}

func readManifest(dir string) (*Manifest, error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	return parseManifest(data)
}

// FindID returns the ID of the image that a person means: by a complete ID, by the
// unique start of one, or by NAME[:VERSION], which is the latest import. If ref is an ID
// or its start, the image may be damaged.
func (s *Store) FindID(ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	sound, damaged, err := s.list()
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(ref, idPrefix) && len(ref) > len(idPrefix) {
		return findPrefix(append(sound, damaged...), ref)
	}
	name, version, _ := strings.Cut(ref, ":")
	for _, image := range sound {
		if image.Manifest.Name == name && (version == "" || image.Manifest.Version() == version) {
			return image.ID, nil
		}
	}
	return "", hintAtDamaged(damaged, fmt.Errorf("%w: %q", ErrNotFound, ref))
}

// Find returns the image that FindID finds.
func (s *Store) Find(ref string) (*Image, error) {
	id, err := s.FindID(ref)
	if err != nil {
		return nil, err
	}
	return s.Get(id)
}

// hintAtDamaged adds to ErrNotFound that there are damaged images, whose names are unknown.
func hintAtDamaged(damaged []*Image, err error) error {
	if len(damaged) == 0 || !errors.Is(err, ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w; it may be one that is damaged, see image list", err)
}

func findPrefix(all []*Image, prefix string) (string, error) {
	var found []string
	for _, image := range all {
		if strings.HasPrefix(image.ID, prefix) {
			found = append(found, image.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w: %q", ErrNotFound, prefix)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%q is the start of %d image IDs", prefix, len(found))
}

// FindLabelled returns the latest import with the name and all of the labels,
// or ErrNotFound.
func (s *Store) FindLabelled(name string, labels []Label) (*Image, error) {
	sound, damaged, err := s.list()
	if err != nil {
		return nil, err
	}
	image, err := pick(sound, name, labels)
	return image, hintAtDamaged(damaged, err)
}

func pick(all []*Image, name string, labels []Label) (*Image, error) {
	for _, image := range all {
		if image.Manifest.Name == name && image.Manifest.HasLabels(labels) {
			return image, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNotFound, describe(name, labels))
}

func describe(name string, labels []Label) string {
	for _, l := range labels {
		name += fmt.Sprintf(",%s=%s", l.Name, l.Value)
	}
	return name
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
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	for {
		err = unix.Flock(int(dir.Fd()), how)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, unix.EINTR) {
			_ = dir.Close()
			return nil, fmt.Errorf("lock images: %w", err)
		}
	}
}

// Remove removes an image from the store unless check returns an error. Check is called
// while no process has pinned the images.
func (s *Store) Remove(id string, check func() error) error {
	lock, err := s.lockImages(unix.LOCK_EX)
	if err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	defer lock.Close()
	if err := check(); err != nil {
		return err
	}
	temp, err := s.newTemp()
	if err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	defer temp.discard()
	err = os.Rename(filepath.Join(s.dir, id), filepath.Join(temp.dir, "removed"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	return nil
}

// isID reports whether a name has the form of an image ID, so that it is not a path that
// leads out of the store.
func isID(name string) bool {
	hex, ok := strings.CutPrefix(name, idPrefix)
	return ok && len(name) == idLength && strings.Trim(hex, "0123456789abcdef") == ""
}
