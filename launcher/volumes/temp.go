package volumes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/launcher/images"
)

// temp is the folder of a volume that is made or removed. Its lock ends with the process: Collect removes the folder of
// one that was killed.
type temp struct {
	dir  string
	lock *os.File
}

func (t *temp) close() { _ = t.lock.Close() }

// data is the folder of the volume's files.
func (t *temp) data() string { return filepath.Join(t.dir, dataDir) }

// lockTemp takes the lock of a temporary folder, or returns unix.EWOULDBLOCK if its process lives, and fs.ErrNotExist
// if the folder has another name by now, or is gone.
func lockTemp(dir string) (*os.File, error) {
	lock, err := images.LockFolder(dir, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	locked, err := lock.Stat()
	if err == nil {
		var named fs.FileInfo
		if named, err = os.Lstat(dir); err == nil && !os.SameFile(locked, named) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// setAside gives a volume the name of a removed one.
func (s *Store) setAside(name string) (*temp, error) {
	dir := filepath.Join(s.dir, name)
	lock, err := images.LockFolder(dir, unix.LOCK_EX) // who waits for the volume's maker has it for a moment
	if err != nil {
		return nil, err
	}
	old := &temp{filepath.Join(s.dir, oldPrefix+rand.Text()), lock}
	if err := os.Rename(dir, old.dir); err != nil {
		old.close()
		return nil, err
	}
	return old, nil
}

// Make makes a volume unless the store has it: fill gets a new folder for the volume's files, root's and with the mode
// 0755. Several processes may make one volume at once: one of them fills it, and the others wait, until their ctx ends.
// After an error of fill there is no volume.
func (s *Store) Make(ctx context.Context, name string, fill func(data string) error) error {
	err := s.Create(ctx, name, fill)
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// Create is Make for a volume that must not exist: that is ErrExists.
func (s *Store) Create(ctx context.Context, name string, fill func(data string) error) error {
	if err := s.create(ctx, name, fill); err != nil {
		return fmt.Errorf("make volume %q: %w", name, err)
	}
	return nil
}

func (s *Store) create(ctx context.Context, name string, fill func(data string) error) error {
	if err := s.mustLack(name); err != nil {
		return err
	}
	made, err := s.newTemp(ctx, name)
	if err != nil {
		return err
	}
	defer made.close()
	// Another process may have made the volume before this one had the lock, and only with the lock is one made.
	err = s.mustLack(name)
	if err == nil {
		err = made.fill(fill)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = os.Rename(made.dir, filepath.Join(s.dir, name))
	}
	if err != nil {
		return errors.Join(err, rmtree.Remove(made.dir))
	}
	return nil
}

// mustLack returns ErrExists if the store has the volume. It waits for a removal that has begun.
func (s *Store) mustLack(name string) error {
	lock, err := s.lock(unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	switch _, err := s.Get(name); {
	case err == nil:
		return ErrExists
	case errors.Is(err, ErrNotFound):
		return nil
	default:
		return err
	}
}

// newTemp makes the folder of a new volume and takes its lock.
func (s *Store) newTemp(ctx context.Context, name string) (*temp, error) {
	dir := filepath.Join(s.dir, newPrefix+name)
	lock, err := await(ctx, func() (*os.File, error) {
		for {
			if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			lock, err := lockTemp(dir)
			if !errors.Is(err, fs.ErrNotExist) { // it was made or removed before this process had the lock
				return lock, err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return &temp{dir, lock}, nil
}

// fill makes the volume's files, and writes them to the disk: a power loss leaves no part of a volume.
func (t *temp) fill(fill func(data string) error) error {
	if err := rmtree.Empty(t.dir); err != nil { // of a maker that was killed
		return err
	}
	if err := os.Mkdir(t.data(), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(t.data(), 0o755); err != nil { // whatever the umask
		return err
	}
	if err := fill(t.data()); err != nil {
		return err
	}
	return os.NewSyscallError("syncfs", unix.Syncfs(int(t.lock.Fd())))
}

// Collect removes what killed makers and removers have left, and returns how many.
func (s *Store) Collect() (int, error) {
	return s.leftovers(func(t *temp) error { return rmtree.Remove(t.dir) })
}

// Leftovers returns what Collect would return.
func (s *Store) Leftovers() (int, error) {
	return s.leftovers(func(*temp) error { return nil })
}

// leftovers calls do for each temporary folder without a process, and returns their number.
func (s *Store) leftovers(do func(*temp) error) (count int, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("collect volumes: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newPrefix) && !strings.HasPrefix(e.Name(), oldPrefix) {
			continue
		}
		dir := filepath.Join(s.dir, e.Name())
		lock, err := lockTemp(dir)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			left := &temp{dir, lock}
			err = do(left)
			left.close()
		}
		if err != nil {
			return count, fmt.Errorf("collect volumes: %w", err)
		}
		count++
	}
	return count, nil
}
