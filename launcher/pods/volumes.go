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

// isEmpty reports whether the volume is an empty volume, made for the pod.
func (v Volume) isEmpty() bool { return v.Source == "" && !v.Hosts }

// emptyVolume returns the host's path of an empty volume.
func (k *Keeper) emptyVolume(volume Volume) string {
	return filepath.Join(k.Dir, volumesDir, volume.Name)
}

// makeEmptyVolumes makes the empty volumes that the pod has not taken from another pod.
func (k *Keeper) makeEmptyVolumes() error {
	for _, volume := range k.Plan.Volumes {
		if !volume.isEmpty() {
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

// MoveVolumes gives the empty volumes of a pod that has ended to a new pod of the plan's Again, which has not been
// started and is deleted if that fails. When a restart was killed, they come from where it has left them. They return
// to the ended pod when the new pod is deleted first: a start that fails loses no data.
func (s *Store) MoveVolumes(ended *Pod, to *Keeper) error {
	if err := s.moveVolumes(ended, to); err != nil {
		return errors.Join(fmt.Errorf("take volumes of pod %s: %w", ended.Plan.UUID, err), to.removeDir())
	}
	return nil
}

func (s *Store) moveVolumes(ended *Pod, to *Keeper) error {
	if !slices.ContainsFunc(ended.Plan.Volumes, Volume.isEmpty) {
		return nil
	}
	all, err := s.List()
	if err != nil {
		return err
	}
	for _, p := range volumesOf(all, ended) {
		err = os.Rename(filepath.Join(p.Dir, volumesDir), filepath.Join(to.Dir, volumesDir))
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// volumesOf returns the pods that may have the volumes of a pod that has ended: those dead that should have taken
// them, the pod, and those from which it should have taken them.
func volumesOf(all []*Pod, ended *Pod) []*Pod {
	var found []*Pod
	byUUID := make(map[string]*Pod)
	for _, p := range all {
		byUUID[p.Plan.UUID] = p
		if p.Plan.VolumesOf == ended.Plan.UUID && !p.alive() {
			found = append(found, p)
		}
	}
	for p := ended; p != nil; p = byUUID[p.Plan.VolumesOf] {
		found = append(found, p)
	}
	return found
}

// returnVolumes gives the volumes that MoveVolumes has moved back to their pod, if that pod still exists and has none.
func (k *Keeper) returnVolumes() error {
	if !isUUID(k.Plan.VolumesOf) {
		return nil
	}
	owner := filepath.Join(filepath.Dir(k.Dir), k.Plan.VolumesOf)
	err := os.Rename(filepath.Join(k.Dir, volumesDir), filepath.Join(owner, volumesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("return volumes to pod %s: %w", k.Plan.VolumesOf, err)
	}
	return nil
}
