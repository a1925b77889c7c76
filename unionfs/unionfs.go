// Package unionfs makes the root file system of an app out of image layers: a
// driver mounts one writable root on top of the layers and does not change them.
// Overlay, AUFS and Copy are the drivers; the conformance suite for
// all of them, and for a new one, is the package unionfstest.
//
// A root looks the same with every driver, but for what the driver's own
// documentation excepts:
//   - its top directory has the mode, owner, times and extended attributes of the
//     topmost layer's, with a path whitelist also. Two kinds of attributes are left out:
//     overlay reads trusted.overlay.*, and the machine sets SELinux's label;
//   - a path shows the topmost layer's file; directories of several layers merge,
//     and any other file replaces the files of that path in the layers below, a symbolic
//     link to a directory also (appc, ace.md, Filesystem Setup);
//   - appc has no whiteouts. Names that begin with ".wh." are ordinary names.
//     Overlay cannot show a character device 0:0, nor the attribute
//     trusted.overlay.opaque=y of a directory: they hide the layers below, and Copy does
//     the same (overlay still lists the name of such a device where no other layer has
//     the directory);
//   - what an app deletes stays deleted, hard links stay links, and rename
//     works on files and directories.
//
// A driver mounts in the mount namespace of the process, not in one that only the
// calling thread has. All drivers need CAP_SYS_ADMIN and the usual capabilities of root over files.
package unionfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Driver makes roots. Its methods may be called by several goroutines at
// once, for different roots.
type Driver interface {
	// Name is the driver's name in configuration and messages.
	Name() string

	// Probe reports whether the driver works here: a nil error, or the reason why not,
	// with the path or the kernel feature it is about. It tries the real thing in a
	// directory of its own below scratch, on top of some of layers, and removes it.
	// notes, for the caller's log, has a sentence for each thing that roots of these
	// layers lack here and that the other drivers keep.
	Probe(scratch string, layers []string) (notes []string, err error)

	// Mount makes the root at r.Target. If it returns an error, r.Target is not a
	// mount point, and Unmount removes what r.Scratch then holds. A cancelled ctx
	// ends a long copy; the error then wraps ctx's.
	Mount(ctx context.Context, r Root) error
}

// Layer is one layer of a root.
type Layer struct {
	// Dir is the layer's top directory, an absolute path. It is only read. What
	// the directory itself is like counts in the topmost layer alone.
	Dir string

	// Filter says which of its paths are part of the root; nil means all.
	Filter *Filter
}

// Root describes one root to make. Only the driver that mounts it may use
// Scratch; two roots never share one.
type Root struct {
	App string // the app's name, for messages

	// Layers begins with the topmost. A layer that occurs again further down is
	// used once, at its topmost place: it hides all of its other occurrences.
	Layers []Layer

	// Scratch is an existing, empty directory, where the app's writes go. It
	// must not be inside Target or a layer. Unmount empties it.
	Scratch string

	// Target is an existing directory that becomes a mount point, with set-user-ID
	// files and device nodes in effect.
	Target string
}

// Unmount detaches the root at r.Target with everything mounted inside, and
// empties r.Scratch. A caller calls it after a failed Mount also; that nothing is
// mounted is not an error. The root lives on, unseen, while a process uses it. A
// caller whose mount namespace is about to end need not call Unmount where r.Scratch
// vanishes with that namespace.
func Unmount(r Root) error {
	err := unix.Unmount(r.Target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount root of app %q: %s: %w", r.App, r.Target, err)
	}
	if err := emptyDir(r.Scratch); err != nil {
		return fmt.Errorf("empty scratch directory of app %q: %w", r.App, err)
	}
	return nil
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// prepare checks r without changing the file system and returns it with every
// layer left once. limit is the most layers the driver takes, 0 for any number.
func prepare(r Root, limit int) (Root, error) {
	r.Layers = distinct(r.Layers)
	if len(r.Layers) == 0 {
		return r, errors.New("the root has no layer")
	}
	if limit > 0 && len(r.Layers) > limit {
		return r, fmt.Errorf("%d layers are more than the %d that can be stacked", len(r.Layers), limit)
	}
	for _, path := range []string{r.Scratch, r.Target} {
		if !filepath.IsAbs(path) {
			return r, fmt.Errorf("path %q is not absolute", path)
		}
	}
	for _, l := range r.Layers {
		if err := checkLayer(l.Dir); err != nil {
			return r, err
		}
	}
	return r, nil
}

// checkLayer names the layer that is wrong, which mount(2) would not.
func checkLayer(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("path %q of a layer is not absolute", dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look up layer: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("layer %s is not a directory", dir)
	}
	return nil
}

// distinct keeps the topmost of equal layers. What a lower occurrence holds
// is hidden by the upper one, so the root is the same; overlay refuses a
// directory that is given twice (ELOOP).
func distinct(layers []Layer) []Layer {
	seen := make(map[string][]*Filter, len(layers))
	kept := make([]Layer, 0, len(layers))
next:
	for _, l := range layers {
		dir := filepath.Clean(l.Dir)
		for _, f := range seen[dir] {
			if f.equal(l.Filter) {
				continue next
			}
		}
		seen[dir] = append(seen[dir], l.Filter)
		kept = append(kept, l)
	}
	return kept
}

// mountError returns a driver's error with the app and the driver.
func mountError(r Root, driver string, err error) error {
	return fmt.Errorf("mount root of app %q: %s: %w", r.App, driver, err)
}

// makeDir makes a directory with exactly mode, whatever the umask.
func makeDir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
