package images

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/launcher/jsonfile"
)

// tempDir is the folder of an import or removal that runs. Its maker holds a lock on it for
// as long as it lives, so that Collect can distinguish it from the folder of a maker that was killed.
type tempDir struct {
	dir  string
	lock *os.File
}

// lockStore takes the store's lock: shared to make a temporary folder and its lock in one
// step, exclusive to look for folders with free locks.
func (s *Store) lockStore(how int) (*os.File, error) { return s.lockFile(".lock", how) }

func (s *Store) lockFile(name string, how int) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make image store: %w", err)
	}
	return openLock(filepath.Join(s.dir, name), os.O_RDWR|os.O_CREATE, how)
}

func (s *Store) newTemp() (*tempDir, error) {
	store, err := s.lockStore(unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	dir, err := os.MkdirTemp(s.dir, tempPrefix)
	if err != nil {
		return nil, err
	}
	return lockTemp(dir)
}

func lockTemp(dir string) (*tempDir, error) {
	lock, err := LockFolder(dir, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	return &tempDir{dir: dir, lock: lock}, nil
}

// setAside makes an image's folder a temporary one by a rename in its place, because a removal must not need space on
// the disk. The folder is locked before it has the name by which Collect would find it.
func (s *Store) setAside(dir string) (*tempDir, error) {
	temp, err := lockTemp(dir)
	if err != nil {
		return nil, err
	}
	temp.dir = filepath.Join(s.dir, tempPrefix+rand.Text())
	if err := os.Rename(dir, temp.dir); err != nil {
		_ = temp.lock.Close()
		return nil, err
	}
	return temp, nil
}

// discard removes the folder and what is in it.
func (t *tempDir) discard() {
	_ = rmtree.Remove(t.dir) // Collect tries again
	_ = t.lock.Close()
}

// Collect removes the folders of killed imports and removals, and new records of images whose writers were killed. It
// returns their number. Imports and other Collects may run at the same time.
func (s *Store) Collect() (int, error) {
	dead, records, err := s.dead(os.Remove)
	for _, temp := range dead {
		temp.discard()
	}
	return len(dead) + records, err
}

// Unfinished returns what Collect would return.
func (s *Store) Unfinished() (int, error) {
	dead, records, err := s.dead(func(path string) error {
		_, err := os.Lstat(path)
		return err
	})
	for _, temp := range dead {
		_ = temp.lock.Close()
	}
	return len(dead) + records, err
}

// dead takes the locks of the temporary folders of makers that have died, and calls found for the paths that new
// records of images may have, see jsonfile.Write. It returns how many there are: nobody writes one now.
func (s *Store) dead(found func(path string) error) (dead []*tempDir, records int, err error) {
	store, err := s.lockStore(unix.LOCK_EX)
	if err != nil {
		return nil, 0, fmt.Errorf("collect images: %w", err)
	}
	defer store.Close()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, 0, fmt.Errorf("collect images: %w", err)
	}
	for _, e := range entries {
		var err error
		path := filepath.Join(s.dir, e.Name())
		if isID(e.Name()) {
			if err = found(filepath.Join(path, recordFile+jsonfile.Unfinished)); err == nil {
				records++
			}
		} else if strings.HasPrefix(e.Name(), tempPrefix) {
			var temp *tempDir
			if temp, err = lockTemp(path); err == nil {
				dead = append(dead, temp)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return dead, records, fmt.Errorf("collect images: %w", err)
		}
	}
	return dead, records, nil
}
