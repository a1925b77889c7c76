package records

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveSandbox removes the record of a sandbox with the folder, in which nothing may be mounted. It may be repeated,
// also after an error.
func (s *Store) RemoveSandbox(id string) error { return remove(s.SandboxDir(id), "sandbox", id) }

// RemoveContainer removes the record of a container. It may be repeated, also after an error.
func (s *Store) RemoveContainer(id string) error { return remove(s.containerDir(id), "container", id) }

// hidden is the name of the record of a container that HideContainer has hidden.
const hidden = "removed"

// HideContainer takes a container out of the lists, and makes it ErrNotFound, for the time of its removal: without its
// pod the container would seem to have failed. It needs no space on the disk, and may be repeated.
func (s *Store) HideContainer(id string) error { return s.renameRecord(id, "container", hidden) }

// ShowContainer undoes HideContainer.
func (s *Store) ShowContainer(id string) error { return s.renameRecord(id, hidden, "container") }

func (s *Store) renameRecord(id, from, to string) error {
	path := func(kind string) string { return filepath.Join(s.containerDir(id), kind+".json") }
	if err := os.Rename(path(from), path(to)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rename record of container: %w", err)
	}
	return nil
}

// ContainerToRemove returns the record of a container, also of one that HideContainer has hidden.
func (s *Store) ContainerToRemove(id string) (Container, error) {
	r, err := s.Container(id)
	if errors.Is(err, ErrNotFound) {
		err = read(s.containerDir(id), hidden, id, &r)
	}
	return r, err
}

// remove removes the record last: until then the caller finds what an error has left, and removes it again.
func remove(dir, kind, id string) error {
	if !isID(id) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != kind+".json" && e.Name() != hidden+".json" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("remove record of %s: %w", kind, err)
	}
	return nil
}

// RemoveStray removes the folders without a record, which a process that was killed has left: one that had not written
// the record yet, or that was removing it. It also removes replacements of files that such a process has not finished.
// Nothing is mounted in them, and no other process may use the store.
func (s *Store) RemoveStray() error {
	var errs []error
	for folder, record := range map[string]string{sandboxes: "sandbox.json", containers: "container.json"} {
		entries, err := os.ReadDir(filepath.Join(s.dir, folder))
		errs = append(errs, err)
		for _, e := range entries {
			dir := filepath.Join(s.dir, folder, e.Name())
			if _, err := os.Lstat(filepath.Join(dir, record)); errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, os.RemoveAll(dir))
				continue
			}
			unfinished, err := filepath.Glob(filepath.Join(dir, "*.json.new*")) // see package jsonfile
			errs = append(errs, err)
			for _, file := range unfinished {
				errs = append(errs, os.Remove(file))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove folders without a record: %w", err)
	}
	return nil
}
