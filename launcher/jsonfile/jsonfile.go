// Package jsonfile keeps values in files, as JSON, which are replaced in one step: a reader gets the old value or the
// new one.
package jsonfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Read decodes the file into a value. A missing file is fs.ErrNotExist.
func Read(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// IsDamage reports whether an error of Read says that the file itself is damaged: its content, or the disk. Any other
// one, such as of a process that has no descriptor left, may be over at the next try.
func IsDamage(err error) bool {
	opening := (*fs.PathError)(nil)
	return err != nil && (!errors.As(err, &opening) || errors.Is(err, syscall.EIO))
}

// Unfinished is the suffix of the file by way of which Write replaces another.
const Unfinished = ".new"

// Write replaces the file by way of PATH.new, mode 0600, which a process that was killed may leave to the next one:
// there must be only one writer at a time. It does not sync: after a power loss the file may be damaged.
func Write(path string, value any) error { return write(path, value, false) }

// WriteSynced is Write for a file that is whole also after a power loss.
func WriteSynced(path string, value any) error { return write(path, value, true) }

func write(path string, value any, sync bool) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path+Unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return replace(path, file, data, sync)
}

// Replace replaces a file by one with the data, mode 0600. Several processes may do so at once; the last one wins. A
// process that is killed leaves PATH.new-NUMBER. It does not sync.
func Replace(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+Unfinished+"-")
	if err != nil {
		return err
	}
	return replace(path, file, data, false)
}

func replace(path string, file *os.File, data []byte, sync bool) error {
	_, err := file.Write(data)
	if err == nil && sync {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
