package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// WriteFile writes a file of that mode into a root, at an absolute path. It makes missing folders with mode 0755, and
// replaces a file, a symbolic link or an empty folder. It resolves the symbolic links of the image in the path inside
// the root, as the app would; a link to a missing folder is an error. Whatever the image has, nothing outside of the
// root is touched. No app must run in the root.
func WriteFile(root, file string, data []byte, mode fs.FileMode) error {
	clean := path.Clean(file)
	if !path.IsAbs(file) || clean == "/" {
		return fmt.Errorf("write file %q into a root: want an absolute path below /", file)
	}
	folder, err := makeFolder(root, path.Dir(clean))
	if err != nil {
		return fmt.Errorf("write %s: open its folder: %w", clean, err)
	}
	defer folder.Close()
	name := path.Base(clean)
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: replace: %w", clean, err)
	}
	if err := writeNew(folder, name, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", clean, err)
	}
	return nil
}

// makeFolder opens a folder in a root, and makes it if the image has none.
func makeFolder(root, folder string) (*os.Root, error) {
	outer, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer outer.Close()
	inner, err := pathrs.MkdirAllHandle(outer, folder, 0o755)
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(inner.Fd())))
}

func writeNew(folder *os.Root, name string, data []byte, mode fs.FileMode) error {
	f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
