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
// descriptors however deep it is, where its file system can rename folders. Symbolic links are removed, not followed.
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
	t := tree{top: top}
	if err := untilEmpty(top, t.flatten); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return pathError("remove", path, unix.Rmdir(path))
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

// flatten removes an entry of the top, of a folder after its own folders have been
// moved up beside it.
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

// takeOut removes an entry of a folder in the top, or moves it up where it is a
// folder. One that cannot be moved, as some of an overlay cannot, is removed where it is.
func (t *tree) takeOut(folder *os.File, entry string) error {
	err := unix.Unlinkat(int(folder.Fd()), entry, 0)
	if !errors.Is(err, unix.EISDIR) {
		return pathError("remove", entry, err)
	}
	for {
		t.moved++
		// An empty folder of that name would be replaced, which is as well.
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

// untilEmpty calls f for every entry of a folder until there is none. An entry that is
// shown and not there is passed over, but not for ever.
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
