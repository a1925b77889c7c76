// Package rmtree removes folders that a stranger has filled. os.RemoveAll holds
// a descriptor open and a stack frame for every level, so that an app can make,
// by mkdir and chdir alone, a folder that it cannot remove.
package rmtree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove removes path and, of a folder, everything in it, with three
// descriptors however deep it is. Symbolic links are removed, not followed.
// It is no error when nothing is there. What nobody else makes in the folder
// meanwhile is gone when it returns nil; an error names what could not be removed.
// Folders are moved up in the tree before they are emptied, so after an
// error what is left is not where it was.
func Remove(path string) error {
	err := unix.Unlink(path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return pathError("remove", path, err)
	}
	top, err := openFolder(unix.AT_FDCWD, path)
	if err != nil {
		return pathError("open", path, err)
	}
	defer top.Close()
	for t := (tree{top: top}); ; {
		n, err := t.flatten()
		if err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
		if n == 0 {
			return pathError("remove", path, unix.Rmdir(path))
		}
	}
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// tree is a folder that is removed.
type tree struct {
	top   *os.File
	moved int // folders moved up so far, for their names
}

// flatten removes the files in the folder, and the folders once theirs have
// been moved up beside them. It returns how many entries it has seen: with none,
// the folder is empty.
func (t *tree) flatten() (int, error) {
	return eachEntry(t.top, func(name string) error {
		err := unlink(t.top, name)
		if !errors.Is(err, unix.EISDIR) {
			return pathError("remove", name, err)
		}
		if err := t.empty(name); err != nil {
			return err
		}
		return pathError("remove", name, unix.Unlinkat(int(t.top.Fd()), name, unix.AT_REMOVEDIR))
	})
}

// empty removes the files of a folder in the top, and moves its folders up.
func (t *tree) empty(name string) error {
	folder, err := openFolder(int(t.top.Fd()), name)
	if err != nil {
		return pathError("open", name, err)
	}
	defer folder.Close()
	for {
		n, err := eachEntry(folder, func(entry string) error {
			err := unlink(folder, entry)
			if errors.Is(err, unix.EISDIR) {
				err = t.moveUp(folder, entry)
			}
			return pathError("remove", entry, err)
		})
		if n == 0 || err != nil {
			return err
		}
	}
}

// moveUp gives a folder a name in the top that nothing there has.
func (t *tree) moveUp(from *os.File, name string) error {
	for {
		t.moved++
		err := unix.Renameat2(int(from.Fd()), name, int(t.top.Fd()), ".rmtree-"+strconv.Itoa(t.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// unlink removes anything but a folder, which is EISDIR.
func unlink(folder *os.File, name string) error {
	err := unix.Unlinkat(int(folder.Fd()), name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func openFolder(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// eachEntry calls f for every entry of a folder, from its beginning, and
// returns how many there were.
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
