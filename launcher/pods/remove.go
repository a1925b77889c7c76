package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/launcher/events"
	"kurma.io/stager/launcher/networks"
)

// removeDir removes the pod's folder and its pin of a network namespace, and returns volumes that belong to another
// pod. It releases the pod's lock, also after an error.
func (k *Keeper) removeDir() error {
	defer k.lock.Close()
	err := networks.Remove(k.pin())
	if err == nil {
		err = k.returnVolumes()
	}
	if err == nil {
		err = k.removeFiles()
	}
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", k.Plan.UUID, err)
	}
	if k.Plan.Name != "" { // not the folder of a maker that was killed before there was a pod
		k.record(events.Event{Action: events.Removed})
	}
	return nil
}

// removeFiles removes the pod's folder. The lock is removed last, so that it shows until then that a process works on
// the folder.
func (k *Keeper) removeFiles() error {
	entries, err := os.ReadDir(k.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockFile {
			continue
		}
		if err := rmtree.Remove(filepath.Join(k.Dir, e.Name())); err != nil {
			return err
		}
	}
	for _, last := range []string{filepath.Join(k.Dir, lockFile), k.Dir} {
		if err := os.Remove(last); err != nil && !errors.Is(err, fs.ErrNotExist) { // see orphan
			return err
		}
	}
	return nil
}
