package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// emptyVolume returns the host's path of an empty volume.
func (k *Keeper) emptyVolume(volume Volume) string {
	return filepath.Join(k.Dir, volumesDir, volume.Name)
}

// makeEmptyVolumes makes the empty volumes that the pod has not taken from another pod.
func (k *Keeper) makeEmptyVolumes() error {
	for _, volume := range k.Plan.Volumes {
		if volume.Source != "" {
			continue
		}
		if err := makeEmptyVolume(k.emptyVolume(volume), volume); err != nil {
			return fmt.Errorf("make volume %q: %w", volume.Name, err)
		}
	}
	return nil
}

func makeEmptyVolume(dir string, volume Volume) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	// chmod(2) ignores the umask, mkdir(2) does not.
	return errors.Join(os.Chown(dir, volume.UID, volume.GID), unix.Chmod(dir, volume.Mode))
}

// MoveVolumes gives the empty volumes of a pod that has ended to a new pod, which has not been started and is deleted
// if that fails. When a restart was killed, and a dead pod has the volumes, they come from there. They return to the
// ended pod when the new pod is deleted first: a start that fails loses no data.
func (s *Store) MoveVolumes(ended *Pod, to *Keeper) error {
	if err := s.moveVolumes(ended, to); err != nil {
		return errors.Join(fmt.Errorf("take volumes of pod %s: %w", ended.Plan.UUID, err), to.removeDir())
	}
	return nil
}

func (s *Store) moveVolumes(ended *Pod, to *Keeper) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	from := ended.Dir
	for _, p := range all {
		if p.State.VolumesOf == ended.Plan.UUID && !p.alive() {
			from = p.Dir
		}
	}
	// The state is on disk before the volumes move, so that whoever deletes the new pod knows their owner.
	to.State.VolumesOf = ended.Plan.UUID
	if err := to.save(); err != nil {
		return err
	}
	old := filepath.Join(from, volumesDir)
	if slices.ContainsFunc(ended.Plan.Volumes, func(v Volume) bool { return v.Source == "" }) {
		return os.Rename(old, filepath.Join(to.Dir, volumesDir))
	}
	return renameIfThere(old, filepath.Join(to.Dir, volumesDir))
}

// returnVolumes gives the volumes that MoveVolumes has moved back to their pod, if that pod still exists and has none.
func (k *Keeper) returnVolumes() error {
	if !isUUID(k.State.VolumesOf) {
		return nil
	}
	owner := filepath.Join(filepath.Dir(k.Dir), k.State.VolumesOf)
	err := renameIfThere(filepath.Join(k.Dir, volumesDir), filepath.Join(owner, volumesDir))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("return volumes to pod %s: %w", k.State.VolumesOf, err)
	}
	return nil
}

// renameIfThere renames a folder, unless the folder or the one of its new name does not exist.
func renameIfThere(from, to string) error {
	if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ResolveFolder returns the absolute path of a folder without symbolic links, so that what is in the folder can be a
// host volume, see CheckSource. The folder, and folders above it, need not exist.
func ResolveFolder(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil || path == "/" {
		return resolved, err
	}
	above, err := ResolveFolder(filepath.Dir(path))
	return filepath.Join(above, filepath.Base(path)), err
}
