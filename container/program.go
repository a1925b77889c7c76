package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fillProgram copies this program into the file at its path, if a daemon has mounted the program over an empty one, as
// the launcher does to share its memory between pods: libcontainer executes the file below the mount (exeseal). Before
// Linux 5.2, which lacks open_tree(2), libcontainer executes a copy.
func fillProgram() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	dir, err := cloneTree(filepath.Dir(path), "", 0)
	if errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.file.Close()
	below := fmt.Sprintf("/proc/self/fd/%d/%s", dir.file.Fd(), filepath.Base(path))
	if info, err := os.Lstat(below); err != nil || info.Size() > 0 {
		return nil //nolint:nilerr // libcontainer executes a copy of a program without a file
	}
	return copyProgram(below)
}

func copyProgram(to string) error {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer program.Close()
	file, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, program)
	return errors.Join(err, file.Close())
}
