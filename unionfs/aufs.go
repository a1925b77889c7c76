package unionfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// AUFS stacks layers with aufs, a file system that some distributions add to
// their kernels (aufs(5)). The kernel was built for a number of branches: 127,
// 511, 1,023 or 32,767. A root needs one branch for the app's writes and one for
// each layer, so Mount refuses 127 layers on a kernel of 127 branches.
//
// Where a root differs from the other drivers' (unionfstest has a case for each):
//   - names that begin with ".wh." are reserved: in a layer they hide nothing and are
//     not shown, and an app cannot make any;
//   - names longer than 242 bytes are not shown and cannot be made;
//   - rename(2) of a directory that has content in a layer returns EXDEV, for which
//     mv(1) and the like copy (the option dirren, which allows it, makes link(2) fail);
//   - a file between two directories of one name does not hide the lower one: the two merge;
//   - the times that an app sets become whole seconds.
//
// aufs does not read overlay's marks, which images of Docker have for the files that a layer deletes. Probe and
// Mount refuse layers that have some, because the root would show the deleted files. Mount does not look into the
// lowest layer, which hides nothing.
//
// A kernel can be built without aufs's extended attributes (CONFIG_AUFS_XATTR).
// Files of a root then have none. Probe returns a note about it, and Probe and
// Mount refuse layers that have file capabilities.
type AUFS struct{}

// Name returns "aufs".
func (AUFS) Name() string { return "aufs" }

// Mount implements Driver.
func (a AUFS) Mount(ctx context.Context, r Root) error {
	if err := a.mount(ctx, r); err != nil {
		return fmt.Errorf("%s: %w", a.Name(), err)
	}
	return nil
}

func (a AUFS) mount(ctx context.Context, r Root) error {
	s, err := NewStack(ctx, r, 0)
	if err != nil {
		return err
	}
	if err := refuseMarks(s.Lower[:len(s.Lower)-1]); err != nil { // the last layer has no layer below it to hide
		return err
	}
	if err := mountAUFS(filepath.Join(r.Scratch, "l"), s.Upper, s.Lower, r.Target); err != nil {
		return err
	}
	if err := finishAUFS(r, s); err != nil {
		return undoAUFS(r.Target, err)
	}
	return nil
}

// finishAUFS checks the mounted root r of the stack s. It also sets the times of the root's
// directory, because aufs changed them when it made its own files in upper. It sets them in upper,
// because through aufs they would be whole seconds.
func finishAUFS(r Root, s Stack) error {
	xattrs, err := hasXattrs(r.Target)
	if err != nil {
		return err
	}
	if !xattrs {
		if _, err := judgeNoXattrs(s.Lower); err != nil {
			return err
		}
	}
	var top unix.Stat_t
	if err := unix.Stat(r.Layers[0].Dir, &top); err != nil {
		return &os.PathError{Op: "stat", Path: r.Layers[0].Dir, Err: err}
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, s.Upper, []unix.Timespec{top.Atim, top.Mtim}, 0); err != nil {
		return fmt.Errorf("set times of %s: %w", s.Upper, err)
	}
	return nil
}

// mountAUFS mounts with short names for the branches, because aufs has no way to
// quote ':', ',' and '=' in a path.
func mountAUFS(links, upper string, dirs []string, target string) error {
	calls := aufsCalls("../"+filepath.Base(upper), shortNames(len(dirs)), unix.Getpagesize())
	return inShortNames(links, dirs, func() error {
		attached := 0
		for i, call := range calls {
			flags := uintptr(0)
			if i > 0 {
				flags = unix.MS_REMOUNT
			}
			err := unix.Mount("none", target, "aufs", flags, call.options)
			if err == nil {
				attached += call.branches
				continue
			}
			err = aufsMountError(err, attached, attached+call.branches)
			err = fmt.Errorf("mount %d layers on %s: %w", len(dirs), target, err)
			if i == 0 {
				return err
			}
			return undoAUFS(target, err)
		}
		return nil
	})
}

// undoAUFS unmounts target and returns err.
func undoAUFS(target string, err error) error {
	if undo := unix.Unmount(target, unix.MNT_DETACH); undo != nil {
		return fmt.Errorf("%w (and unmount it again: %w)", err, undo)
	}
	return err
}

// aufsMountError explains the error err of mount(2) for a root that has attached branches and should
// have wanted branches.
func aufsMountError(err error, attached, wanted int) error {
	if errors.Is(err, unix.ENODEV) {
		return errNoAUFS
	}
	if limit := aufsLimit(attached, wanted); limit > 0 && errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("this kernel's aufs takes at most %d layers", limit-1)
	}
	return fmt.Errorf("branches %d to %d: %w", attached, wanted-1, err)
}

// aufsLimit returns the number of branches that the kernel was built for, if it accepted attached
// branches and refused wanted branches; 0 if no number fits. aufs does not report the number, but
// only four are possible (fs/aufs/Kconfig).
func aufsLimit(attached, wanted int) int {
	for _, limit := range []int{127, 511, 1023, 32767} {
		if attached <= limit && limit < wanted {
			return limit
		}
	}
	return 0
}
