package unionfs

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Probe implements Driver. If scratch and the layers are on file systems that are known to work, it
// only checks that the kernel has overlay. Otherwise it mounts an overlay in scratch, on a layer of
// each file system among layers, deletes a file and renames a directory of a layer: not every file
// system can hold the marks that overlay then makes. It always does so for another user than 0, to whom the owners of
// the layers are mapped: overlay takes such layers since Linux 5.19.
func (o Overlay) Probe(scratch string, layers []string) (notes []string, err error) {
	known := unix.Geteuid() == 0 && !o.mount2 && knownToServe(append([]string{scratch}, layers...))
	if known && openFileSystem(o.Name()) == nil {
		return nil, nil
	}
	dir, err := os.MkdirTemp(scratch, "probe-overlay-")
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	err = o.try(dir, layers)
	if removeErr := os.RemoveAll(dir); err == nil {
		err = removeErr
	}
	if err != nil {
		return nil, fmt.Errorf("overlay in %s: %w", scratch, err)
	}
	return nil, nil
}

// knownToServe reports whether all of dirs are on file systems on which the kernel's own tests of
// overlay run. A trial writes about twenty times to the disk, which takes longer than mounting the
// roots of a pod.
func knownToServe(dirs []string) bool {
	for _, dir := range dirs {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return false
		}
		switch fs.Type {
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		default:
			return false
		}
	}
	return true
}

// openFileSystem returns nil if the kernel has the file system, which it loads if that is a module. The error is ENODEV
// if the kernel lacks it, and ENOSYS before Linux 5.2, which cannot tell.
func openFileSystem(name string) error {
	fd, err := unix.Fsopen(name, unix.FSOPEN_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// try mounts an overlay in dir and uses it.
func (o Overlay) try(dir string, layers []string) (err error) {
	trial, err := planTrial(dir, layers)
	if err != nil {
		return err
	}
	if err := o.mount(trial.overlayPlan, trial.target); err != nil {
		return err
	}
	defer func() {
		if undo := unix.Unmount(trial.target, unix.MNT_DETACH); err == nil {
			err = undo
		}
	}()
	if err := os.Remove(filepath.Join(trial.target, "file")); err != nil {
		return fmt.Errorf("hold a deleted file: %w", err)
	}
	if err := os.Rename(filepath.Join(trial.target, "dir"), filepath.Join(trial.target, "renamed")); err != nil {
		return fmt.Errorf("hold a renamed directory: %w", err)
	}
	return nil
}

// trial is a root that a probe mounts.
type trial struct {
	overlayPlan

	target string
}

// planTrial fills dir with a small layer, on top of one layer per file system.
func planTrial(dir string, layers []string) (trial, error) {
	sub := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"layer", "layer/dir", "upper", "work", "target"} {
		if err := makeDir(sub(name), 0o755); err != nil {
			return trial{}, err
		}
	}
	if err := os.WriteFile(sub("layer/file"), nil, 0o644); err != nil {
		return trial{}, err
	}
	plan := overlayPlan{lower: []string{sub("layer")}, upper: sub("upper"), work: sub("work"), links: sub("l")}
	samples, err := onePerDevice(layers)
	plan.lower = append(plan.lower, samples...)
	return trial{plan, sub("target")}, err
}

// onePerDevice returns the first of dirs on each file system.
func onePerDevice(dirs []string) ([]string, error) {
	var first []string
	seen := map[uint64]bool{}
	for _, dir := range dirs {
		var stat unix.Stat_t
		if err := unix.Stat(dir, &stat); err != nil {
			return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
		}
		if !seen[stat.Dev] {
			seen[stat.Dev] = true
			first = append(first, dir)
		}
	}
	return first, nil
}
