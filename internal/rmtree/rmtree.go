// Package rmtree removes folders with untrusted contents. os.RemoveAll holds an open descriptor
// and a stack frame for every level, so an app can make, with mkdir and chdir alone, a folder
// that os.RemoveAll cannot remove.
package rmtree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove removes path, and if it is a folder, everything in it. It does not follow symbolic
// links; it removes them. It is not an error if path does not exist. If the file system can
// rename folders, Remove needs three descriptors at any depth. When Remove returns nil,
// everything is gone, except what other processes made in the folder meanwhile; an error names
// what Remove could not remove. Remove moves folders up in the tree before it empties them, so
// after an error the remaining files are not where they were.
func Remove(path string) error {
	err := unix.Unlink(path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return pathError("remove", path, err)
	}
	if err := Empty(path); err != nil {
		return err
	}
	return pathError("remove", path, unix.Rmdir(path))
}

// Empty removes everything in a folder, as Remove does.
func Empty(path string) error {
	top, err := openFolder(unix.AT_FDCWD, path)
	if err != nil {
		return pathError("open", path, err)
	}
	defer top.Close()
	t := tree{top: top}
	if err := untilEmpty(top, t.flatten); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// tree is a folder that is being removed.
type tree struct {
	top   *os.File
	moved int // folders moved up so far, for their names
}

// flatten removes an entry of the top folder. If the entry is a folder, flatten first moves the
// folders in it up beside it.
func (t *tree) flatten(name string) error {
	err := unix.Unlinkat(int(t.top.Fd()), name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return pathError("remove", name, err)
	}
	folder, err := openFolder(int(t.top.Fd()), name)
	if err != nil {
		return pathError("open", name, err)
	}
	defer folder.Close()
	if err := untilEmpty(folder, func(entry string) error { return t.takeOut(folder, entry) }); err != nil {
		return err
	}
	return pathError("remove", name, unix.Unlinkat(int(t.top.Fd()), name, unix.AT_REMOVEDIR))
}

// takeOut removes an entry of a folder in the top folder; if the entry is itself a folder,
// takeOut moves it up. A folder that cannot be moved, such as some in an overlay, is removed in
// place.
func (t *tree) takeOut(folder *os.File, entry string) error {
	err := unix.Unlinkat(int(folder.Fd()), entry, 0)
	if !errors.Is(err, unix.EISDIR) {
		return pathError("remove", entry, err)
	}
	for {
		t.moved++
		// This replaces an empty folder of that name, which would be removed anyway.
		err := unix.Renameat(int(folder.Fd()), entry, int(t.top.Fd()), ".rmtree-"+strconv.Itoa(t.moved))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR):
			continue // the name is taken
		}
		return os.RemoveAll(fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), entry))
	}
}

func openFolder(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// untilEmpty calls f for every entry of a folder until the folder is empty. It skips an entry
// that is listed but does not exist; if only such entries are left, it returns an error.
func untilEmpty(folder *os.File, f func(name string) error) error {
	for {
		var missing error
		done := false
		seen, err := eachEntry(folder, func(name string) error {
			err := f(name)
			if errors.Is(err, unix.ENOENT) {
				missing = err
				return nil
			}
			done = true
			return err
		})
		switch {
		case err != nil:
			return err
		case seen == 0:
			return nil
		case !done:
			return missing
		}
	}
}

// eachEntry calls f for every entry of a folder, from the start, and returns the number of
// entries.
func eachEntry(folder *os.File, f func(name string) error) (seen int, err error) {
	if _, err := folder.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	for {
		names, err := folder.Readdirnames(256)
		if errors.Is(err, io.EOF) {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
		seen += len(names)
		for _, name := range names {
			if err := f(name); err != nil {
				return seen, err
			}
		}
	}
}
