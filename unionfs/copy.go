package unionfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Copy copies all layers into the scratch directory and binds the result to the target. It is slow,
// but works on every kernel and file system, with any number of layers. Files share their data with
// the layers if the file system supports it (FICLONE), and holes stay holes. Copy keeps modes, owners,
// times (of modification and access), extended attributes, hard links, devices, fifos and sockets.
//
// Mount returns an error for a layer's directory or file with
// trusted.overlay.redirect, .metacopy or .whiteout.
type Copy struct{}

// Name returns "copy".
func (Copy) Name() string { return "copy" }

// Probe implements Driver: scratch must be writable.
func (Copy) Probe(scratch string, _ []string) (notes []string, err error) {
	dir, err := os.MkdirTemp(scratch, "probe-copy-")
	if err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	return nil, os.Remove(dir)
}

// Mount implements Driver.
func (c Copy) Mount(ctx context.Context, r Root) error {
	r, err := prepare(r, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	dir := filepath.Join(r.Scratch, "root")
	if err := makeDir(dir, 0o755); err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	if err := copyLayers(ctx, dir, r.Layers, merged); err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	if err := topAttributes(dir, r.Layers[0]); err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	if err := bindRoot(dir, r.Target); err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	return nil
}

// bindRoot binds dir to target. Set-user-ID files and device nodes work there even if dir's file system
// is mounted nosuid or nodev.
func bindRoot(dir, target string) error {
	if err := unix.Mount(dir, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", dir, target, err)
	}
	err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RELATIME, "")
	if err == nil {
		return nil
	}
	if undo := unix.Unmount(target, unix.MNT_DETACH); undo != nil {
		return fmt.Errorf("allow devices on %s: %w (and unmount it again: %w)", target, err, undo)
	}
	return fmt.Errorf("allow devices on %s: %w", target, err)
}

// filteredDirs returns the directories of r's layers. For a layer with a filter it makes a copy, in
// r.Scratch, of what the filter keeps. It makes no copy if the filter keeps the whole layer, which is
// usual in images converted from Docker, where whitelists replace whiteouts, or if there is no filter.
func filteredDirs(ctx context.Context, r Root) ([]string, error) {
	dirs := make([]string, len(r.Layers))
	for i, l := range r.Layers {
		whole, err := keepsWhole(l)
		if err != nil {
			return nil, err
		}
		if dirs[i] = l.Dir; whole {
			continue
		}
		dirs[i] = filepath.Join(r.Scratch, "filtered-"+strconv.Itoa(i))
		if err := makeDir(dirs[i], 0o755); err != nil {
			return nil, err
		}
		if err := copyLayers(ctx, dirs[i], []Layer{l}, verbatim); err != nil {
			return nil, fmt.Errorf("filter layer %s: %w", l.Dir, err)
		}
	}
	return dirs, nil
}
