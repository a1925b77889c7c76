// Package volumes keeps named volumes: folders of files that outlive the pods that mount them.
//
// On disk, below the store's folder (mode 0700, root's):
//
//	NAME/          one volume; its time of change is that of its making
//	    data/      its files
//	.new-NAME/     a volume that is being made, locked by its maker
//	.old-…/        a volume that is being removed, locked by the remover
//
// A volume appears under its name by one rename, complete, and disappears by one: a maker or remover that is killed
// never leaves a part of a volume. The store's folder is locked (flock(2)) while a removal looks for the pods that use
// the volume: a pod is put into its own store first, and looks for its volumes afterwards.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/launcher/images"
)

var (
	// ErrNotFound says that the store does not have the volume.
	ErrNotFound = errors.New("no such volume")
	// ErrExists says that the store has a volume of that name.
	ErrExists = errors.New("volume exists")
)

const (
	dataDir   = "data"
	newPrefix = ".new-"
	oldPrefix = ".old-"
)

// Store is a folder of volumes. Several processes may use it at once.
type Store struct{ dir string }

// Volume is a volume of a store.
type Volume struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"` // of its files
	Created time.Time `json:"created"`
}

// Open returns the store in a folder, an absolute path. The folder is made when it is needed. A path of a volume has no
// symbolic links, as the source of a pod's volume must not.
func Open(dir string) *Store { return &Store{dir: withoutLinks(dir)} }

// withoutLinks returns a path of which only the end need not exist, without symbolic links.
func withoutLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	above := filepath.Dir(path)
	if above == path {
		return path
	}
	return filepath.Join(withoutLinks(above), filepath.Base(path))
}

// Path returns the folder of a volume's files, whether the volume exists or not.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name, dataDir) }

// NameOf returns the name of the volume with these files; false for any other path.
func (s *Store) NameOf(path string) (name string, ok bool) {
	name = filepath.Base(filepath.Dir(path))
	return name, isVolume(name) && path == s.Path(name)
}

// isVolume reports whether an entry of the store's folder of that name is a volume.
func isVolume(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsRune(name, filepath.Separator)
}

// List returns the volumes in the order of their names.
func (s *Store) List() ([]Volume, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	var all []Volume
	for _, e := range entries {
		if !isVolume(e.Name()) {
			continue
		}
		volume, err := s.Get(e.Name())
		if errors.Is(err, ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return nil, fmt.Errorf("list volumes: %w", err)
		}
		all = append(all, volume)
	}
	return all, nil
}

// Get returns the volume of that name, or ErrNotFound.
func (s *Store) Get(name string) (Volume, error) {
	var info fs.FileInfo
	err := fs.ErrNotExist
	if isVolume(name) {
		info, err = os.Lstat(filepath.Join(s.dir, name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Volume{}, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	if err != nil {
		return Volume{}, err
	}
	return Volume{Name: name, Path: s.Path(name), Created: info.ModTime().UTC()}, nil
}

// lock takes the lock of the store's folder, which it makes.
func (s *Store) lock(how int) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make store of volumes: %w", err)
	}
	lock, err := images.LockFolder(s.dir, how)
	if err != nil {
		return nil, fmt.Errorf("lock volumes: %w", err)
	}
	return lock, nil
}

// lookInterval is how often a lock is tried again.
const lookInterval = 10 * time.Millisecond

// await calls try until its error is not that another process has the lock, or ctx ends.
func await(ctx context.Context, try func() (*os.File, error)) (*os.File, error) {
	for {
		lock, err := try()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lookInterval):
		}
	}
}

// Remove removes a volume, unless free returns an error: it is called while no volume is looked for.
func (s *Store) Remove(ctx context.Context, name string, free func() error) error {
	if err := s.remove(ctx, name, free); err != nil {
		return fmt.Errorf("remove volume %q: %w", name, err)
	}
	return nil
}

func (s *Store) remove(ctx context.Context, name string, free func() error) error {
	lock, err := await(ctx, func() (*os.File, error) { return s.lock(unix.LOCK_EX | unix.LOCK_NB) })
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := s.Get(name); err != nil {
		return err
	}
	if err := free(); err != nil {
		return err
	}
	old, err := s.setAside(name)
	if err != nil {
		return err
	}
	defer old.close()
	_ = lock.Close() // the removal of the files may take long
	return rmtree.Remove(old.dir)
}
