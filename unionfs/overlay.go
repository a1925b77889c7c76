package unionfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxOverlayLayers is the kernel's OVL_MAX_STACK.
const maxOverlayLayers = 500

// Overlay stacks up to 500 layers with the kernel's overlay file system (4.19 or
// newer). Its zero value is ready to use.
//
// Scratch must be on a file system that can hold an upper directory: not on
// overlay itself, and with extended attributes; Probe checks it. The layers may lie
// on an overlay that does not lie on another.
type Overlay struct {
	// mount2 mounts without fsopen(2), as on a kernel without lowerdir+.
	mount2 bool
}

// overlayOptions is the same for every root:
//   - redirect_dir=on: rename(2) of a directory from a layer works instead of
//     returning EXDEV;
//   - index=on: hard links of a layer stay links when one is written to, and
//     a second root on the same upper directory is refused;
//   - metacopy=off: a layer cannot point at other files' data;
//   - xino=auto: all files have one device number, as find -xdev expects,
//     where layers and scratch lie on different file systems;
//   - volatile: nothing is synced. A root is gone when its app is, so syncing
//     it at unmount (all of the upper file system, a whole disk) and at every fsync
//     has no use. Kernel 5.10; not set before.
//
// (Documentation/filesystems/overlayfs.rst.)
func overlayOptions() [][2]string {
	return [][2]string{{"redirect_dir", "on"}, {"index", "on"}, {"metacopy", "off"}, {"xino", "auto"}}
}

// overlayPlan is one overlay mount as plain data.
type overlayPlan struct {
	lower       []string // topmost first
	upper, work string
	links       string // a directory to be made for short names
}

// Name returns "overlay".
func (Overlay) Name() string { return "overlay" }

// Mount implements Driver.
func (o Overlay) Mount(ctx context.Context, r Root) error {
	stack, err := NewStack(ctx, r, maxOverlayLayers)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name(), err)
	}
	plan := overlayPlan{lower: stack.Lower, upper: stack.Upper, work: stack.Work, links: filepath.Join(r.Scratch, "l")}
	if err := o.mount(plan, r.Target); err != nil {
		return fmt.Errorf("%s: %w", o.Name(), err)
	}
	return nil
}

// mount tries fsopen(2) and, where this kernel cannot mount the plan so, mount(2).
func (o Overlay) mount(plan overlayPlan, target string) error {
	if o.mount2 {
		return plan.mountLegacy(target)
	}
	tree, err := plan.open()
	if errors.Is(err, errAskMount2) {
		if legacyErr := plan.mountLegacy(target); legacyErr != nil {
			return fmt.Errorf("%w; before that, %w", legacyErr, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach to %s: %w", target, err)
	}
	return nil
}
