package unionfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var errNoAUFS = errors.New("the kernel does not have aufs")

// Probe implements Driver. It mounts a root in scratch, on a layer of each file system among layers,
// and uses it like an app: a kernel with aufs still refuses a branch on a stacked file system, such as
// overlay or aufs.
func (a AUFS) Probe(scratch string, layers []string) (notes []string, err error) {
	dir, err := os.MkdirTemp(scratch, "probe-aufs-")
	if err != nil {
		return nil, fmt.Errorf("aufs: %w", err)
	}
	notes, err = a.tryIfKnown(dir, layers)
	if removeErr := os.RemoveAll(dir); err == nil {
		err = removeErr
	}
	if err != nil {
		return nil, fmt.Errorf("aufs in %s: %w", scratch, err)
	}
	return notes, nil
}

// tryIfKnown calls try unless the kernel lacks aufs.
func (a AUFS) tryIfKnown(dir string, layers []string) ([]string, error) {
	if errors.Is(openFileSystem(a.Name()), unix.ENODEV) {
		return nil, errNoAUFS
	}
	if err := refuseMarks(layers); err != nil {
		return nil, err
	}
	xattrs, err := a.try(dir, layers)
	if err != nil || xattrs {
		return nil, err
	}
	return judgeNoXattrs(layers)
}

// try mounts a root in dir, uses it, and tells whether its files have extended attributes.
func (AUFS) try(dir string, layers []string) (xattrs bool, err error) {
	trial, err := planTrial(dir, layers)
	if err != nil {
		return false, err
	}
	if err := mountAUFS(trial.links, trial.upper, trial.lower, trial.target); err != nil {
		return false, err
	}
	defer func() {
		if undo := unix.Unmount(trial.target, unix.MNT_DETACH); err == nil {
			err = undo
		}
	}()
	if err := os.WriteFile(filepath.Join(trial.target, "dir", "new"), []byte("new"), 0o644); err != nil {
		return false, fmt.Errorf("hold a new file: %w", err)
	}
	if err := os.Chmod(filepath.Join(trial.target, "file"), 0o600); err != nil {
		return false, fmt.Errorf("hold a changed file: %w", err)
	}
	if err := os.Remove(filepath.Join(trial.target, "file")); err != nil {
		return false, fmt.Errorf("hold a deleted file: %w", err)
	}
	return hasXattrs(trial.target)
}

// hasXattrs reports whether the file system of the directory dir has extended attributes.
func hasXattrs(dir string) (bool, error) {
	_, err := getXattr(dir, "trusted.stager.none")
	return judgeXattrs(dir, err)
}

// judgeXattrs decides for hasXattrs, by the error of reading an attribute.
func judgeXattrs(dir string, err error) (bool, error) {
	switch {
	case err == nil || errors.Is(err, unix.ENODATA):
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	default:
		return false, fmt.Errorf("read extended attributes of %s: %w", dir, err)
	}
}

// judgeNoXattrs returns the note about a root without extended attributes, or an error that names the
// first file that would lose its capabilities.
func judgeNoXattrs(layers []string) (notes []string, err error) {
	for _, layer := range layers {
		file, err := findCapability(layer)
		if err != nil {
			return nil, fmt.Errorf("look for file capabilities in layer %s: %w", layer, err)
		}
		if file != "" {
			return nil, fmt.Errorf("extended attributes are not kept "+
				"(the kernel's aufs or the scratch file system lacks them), and %s has capabilities", filepath.Join(layer, file))
		}
	}
	return []string{"extended attributes of files are lost: " +
		"the kernel's aufs (CONFIG_AUFS_XATTR) or the scratch file system lacks them"}, nil
}

// findCapability returns a file of layer that has capabilities, or "".
func findCapability(layer string) (found string, err error) {
	_, err = anyIn(layer, func(parent *os.File, p string, dir bool) bool {
		if dir {
			return false
		}
		_, err := getXattr(procPath(int(parent.Fd()), path.Base(p)), "security.capability")
		if err == nil {
			found = p
		}
		return err == nil
	})
	return found, err
}

// refuseMarks returns an error that names the first of overlay's marks in layers.
func refuseMarks(layers []string) error {
	for _, layer := range layers {
		file, err := findMark(layer)
		if err != nil {
			return fmt.Errorf("look for overlay's marks in layer %s: %w", layer, err)
		}
		if file != "" {
			return fmt.Errorf("%s hides files of the layers below, which aufs would show; use overlay or copy",
				filepath.Join(layer, file))
		}
	}
	return nil
}

// findMark returns a path of layer that hides files of the layers below, or "". A path with an attribute whose
// meaning only overlay knows is an error.
func findMark(layer string) (found string, err error) {
	var failed error
	_, err = anyIn(layer, func(parent *os.File, p string, dir bool) bool {
		e := &entry{name: path.Base(p), dir: parent}
		failed = unix.Fstatat(int(parent.Fd()), e.name, &e.stat, unix.AT_SYMLINK_NOFOLLOW)
		if failed == nil {
			_, failed = xattrsOf(e, merged)
		}
		if failed != nil {
			failed = fmt.Errorf("/%s: %w", p, failed)
			return true
		}
		if e.isWhiteout() || dir && isOpaque(e) {
			found = p
		}
		return found != ""
	})
	return found, errors.Join(err, failed)
}
