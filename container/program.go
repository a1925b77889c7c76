package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// fillProgram copies this program into the file at its path, if a daemon has mounted the program over an empty one, as
// the launcher does to share its memory between pods: libcontainer executes the file below the mount (exeseal). A file
// of another size is a copy that was cut short.
func fillProgram() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	dir, err := cloneTree(filepath.Dir(path), "", 0)
	if err != nil {
		return err
	}
	defer dir.file.Close()
	return copyProgram(fmt.Sprintf("/proc/self/fd/%d/%s", dir.file.Fd(), filepath.Base(path)))
}

func copyProgram(to string) error {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer program.Close()
	whole, err := program.Stat()
	if err != nil {
		return err
	}
	if info, err := os.Lstat(to); err != nil || info.Size() == whole.Size() {
		return nil //nolint:nilerr // libcontainer executes a copy of a program without a file
	}
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, program)
	return errors.Join(err, file.Close())
}
