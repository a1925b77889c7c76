package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kurma.io/stager/spec"
)

// checkSystemFolders refuses a root in which a folder of spec.SystemFolders is anything but a folder. A missing one
// is made later. libcontainer itself checks /proc and /sys, and follows a linked /dev.
func checkSystemFolders(root string) error {
	for _, path := range spec.SystemFolders() {
		info, err := os.Lstat(filepath.Join(root, path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s in the root is a symbolic link, and must be a folder", path)
		case !info.IsDir():
			return fmt.Errorf("%s in the root is a file, and must be a folder", path)
		}
	}
	return nil
}
