// Package unionfs makes the root file system of an app from image layers: a driver mounts one
// writable root on top of the layers and does not change them. Overlay, AUFS and Copy are the
// drivers; package unionfstest is the conformance suite for them and for new ones.
//
// A root looks the same with every driver, except for what the driver's own documentation lists:
//   - its top directory has the mode, owner, times and extended attributes of the topmost
//     layer's, also with a path whitelist. Two kinds of attributes are omitted: overlay reads
//     trusted.overlay.*, and the machine sets SELinux's label;
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
// calling thread has. A root ends with that namespace, or with a lazy unmount of its
// target (MNT_DETACH). All drivers need CAP_SYS_ADMIN and the usual capabilities of root over files.
package unionfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// Driver makes roots. Its methods may be called by several goroutines at
// once, for different roots.
type Driver interface {
	// Name is the driver's name in configuration and messages.
	Name() string

	// Probe returns nil if the driver works here, else an error with the reason and the path
	// or the kernel feature. Where it has to try, it makes a root in a new directory below
	// scratch, on top of some of the layers, and removes it. notes, for the caller's log, has a sentence for
	// each limitation that roots of these layers have here, and not with the other drivers.
	Probe(scratch string, layers []string) (notes []string, err error)

	// Mount makes the root at r.Target. If it returns an error, which names the driver, r.Target is not a
	// mount point, and r.Scratch may hold files. A cancelled ctx ends a long copy;
	// the error then wraps ctx's.
	Mount(ctx context.Context, r Root) error
}

// Layer is one layer of a root.
type Layer struct {
	// Dir is the layer's top directory, an absolute path. Drivers only read it. Only the
	// topmost layer's attributes of the directory itself matter.
	Dir string

	// Filter selects the layer's paths that are part of the root; nil means all.
	Filter *Filter
}

// Root describes one root to make. Only the driver that mounts it may use
// Scratch; two roots never share one.
type Root struct {
	App string // the app's name, for messages

	// Layers begins with the topmost. A layer that occurs several times is used once, at its
	// topmost place: it hides its other occurrences.
	Layers []Layer

	// Scratch is an existing, empty directory for the app's writes. It must not be inside
	// Target or a layer. os.RemoveAll may fail on what the app has made in it;
	// package internal/rmtree removes any tree.
	Scratch string

	// Target is an existing directory that becomes a mount point, with set-user-ID
	// files and device nodes in effect.
	Target string
}

// prepare checks r without changing the file system, and returns it with each layer only once. limit
// is the maximum number of layers of the driver, 0 for any number.
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

// checkLayer returns an error that names an invalid layer; mount(2) would not name it.
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

// distinct keeps the topmost of equal layers. The upper occurrence hides the lower ones, so the root
// is the same; overlay refuses a directory that is given twice (ELOOP).
func distinct(layers []Layer) []Layer {
	seen := make(map[string][]*Filter, len(layers))
	kept := make([]Layer, 0, len(layers))
	for _, l := range layers {
		dir := filepath.Clean(l.Dir)
		same := func(f *Filter) bool { return reflect.DeepEqual(f, l.Filter) } // no set, for every path, is not the empty one
		if slices.ContainsFunc(seen[dir], same) {
			continue
		}
		seen[dir] = append(seen[dir], l.Filter)
		kept = append(kept, l)
	}
	return kept
}

// makeDir makes a directory with exactly mode, regardless of the umask.
func makeDir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
