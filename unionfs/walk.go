package unionfs

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// keepsWhole reports whether l's filter keeps every path of the layer.
func keepsWhole(l Layer) (bool, error) {
	if l.Filter == nil {
		return true, nil
	}
	drops, err := anyIn(l.Dir, func(_ *os.File, p string, dir bool) bool { return !l.Filter.keeps(p, dir) })
	if err != nil {
		return false, fmt.Errorf("compare layer %s with its whitelist: %w", l.Dir, err)
	}
	return !drops, nil
}

// matcher reports whether the path p matches; its last name is in the directory parent.
type matcher func(parent *os.File, p string, dir bool) bool

// anyIn is anyPath for a directory by its path.
func anyIn(dir string, match matcher) (bool, error) {
	top, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
	if err != nil {
		return false, err
	}
	defer top.Close()
	return anyPath(top, "", match)
}

// anyPath reports whether match is true for any path inside dir, which itself has the path rel.
func anyPath(dir *os.File, rel string, match matcher) (bool, error) {
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		p := path.Join(rel, e.Name())
		if match(dir, p, e.IsDir()) {
			return true, nil
		}
		if !e.IsDir() {
			continue
		}
		if found, err := anyPathIn(dir, e.Name(), p, match); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func anyPathIn(dir *os.File, name, rel string, match matcher) (bool, error) {
	sub, err := openDirAt(dir, name)
	if err != nil {
		return false, err
	}
	defer sub.Close()
	return anyPath(sub, rel, match)
}

// openDirAt opens the directory name in dir for reading, not through a
// symbolic link, and without changing its time of access.
func openDirAt(dir *os.File, name string) (*os.File, error) {
	return openFileAt(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
}
