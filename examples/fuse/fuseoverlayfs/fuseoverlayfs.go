// Package fuseoverlayfs is a union file system driver: it stacks layers with the program
// fuse-overlayfs, a helper process for each root.
package fuseoverlayfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/helper"
	"kurma.io/stager/unionfs"
)

// maxLayers is what unionfstest tries. The program itself has no limit but its descriptors.
const maxLayers = 500

// Driver implements unionfs.Driver with fuse-overlayfs. It needs Linux 5.4 and libfuse 3.3.
//
// Where a root differs from the other drivers' (seen with fuse-overlayfs 1.10; the test declares
// the cases of unionfstest that it concerns):
//   - rename(2) of a directory of a layer returns EXDEV, for which mv(1) and the like copy;
//   - a change of the owner, mode or times of a layer's FIFO or device node makes a regular
//     file of it, and can return EIO;
//   - names that begin with ".wh." are reserved: those of a layer hide what is below;
//   - names longer than 251 bytes cannot be made;
//   - the links of a layer's file are counted as the app comes across them;
//   - overlay's mark of an opaque directory also counts on a layer's own directory, and hides all
//     layers below;
//   - the path of the scratch directory has no ':'. Mount refuses one that has.
type Driver struct {
	// Program is what starts fuse-overlayfs: an absolute path, and arguments before its own.
	Program []string

	// Helpers starts the processes. Where they can be out of the apps' reach, they are.
	Helpers helper.Starter

	// Log takes an error when a root's process ends before its root is unmounted: an access to the
	// root returns ENOTCONN from then on, unless the kernel has the answer in its cache.
	Log *slog.Logger
}

var _ unionfs.Driver = Driver{}

// Name returns "fuse-overlayfs".
func (Driver) Name() string { return "fuse-overlayfs" }

// Mount implements unionfs.Driver. A root's helper ends when the root is unmounted and no process
// uses it, and with the program that has started it.
func (d Driver) Mount(ctx context.Context, r unionfs.Root) error {
	stack, err := unionfs.NewStack(ctx, r, maxLayers)
	if err == nil {
		var process *helper.Process
		if process, err = d.mount(ctx, "of app "+r.App, r.Scratch, r.Target, stack.Lower); err == nil {
			go d.watch(r, process)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name(), err)
	}
	return nil
}

// watch reports a mounted root after the end of its helper. A helper can also end with an
// error because of the unmount: the kernel answers a read with ECONNABORTED, and not with ENODEV, if the
// unmount comes while it hands over a request (fuse_dev_do_read).
func (d Driver) watch(r unionfs.Root, process *helper.Process) {
	err := process.Wait()
	if err == nil {
		return
	}
	if statErr := unix.Statfs(r.Target, new(unix.Statfs_t)); !errors.Is(statErr, unix.ENOTCONN) {
		d.Log.Info("helper ended after its root", "app", r.App, "driver", d.Name(), "error", err)
		return
	}
	d.Log.Error("root file system is lost: accesses to it return ENOTCONN", "app", r.App, "driver", d.Name(), "error", err)
}

// Where the helper finds the descriptors that it is given.
const (
	deviceFile  = "/dev/fd/3"       // libfuse knows the form: /dev/fuse, mounted already
	scratchFile = "/proc/self/fd/4" // an O_PATH descriptor of the scratch directory
)

// mount mounts the layers lower, and upper and work of scratch, at target, and returns the
// helper that serves the root. The mount is attached to target when the helper has answered a first
// request, and not at all if mount returns an error.
func (d Driver) mount(ctx context.Context, name, scratch, target string, lower []string) (*helper.Process, error) {
	layers, err := linkLayers(filepath.Join(scratch, "l"), lower)
	if err != nil {
		return nil, err
	}
	place, err := os.OpenFile(scratch, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	if err := checkScratch(place); err != nil {
		return nil, err
	}
	device, err := openDevice()
	if err != nil {
		return nil, err
	}
	defer device.Close()
	tree, err := newMount(device)
	if err != nil {
		return nil, err
	}
	defer unix.Close(tree)
	process, err := d.Helpers.Start(ctx, helper.Command{
		Name: d.Name() + " " + name,
		Args: append(d.Program[:len(d.Program):len(d.Program)], "-f", "-o", options(layers), deviceFile),
		// The program looks for its own descriptors in /proc/self.
		Files: []*os.File{device, place}, OwnMounts: true,
	})
	if err != nil {
		return nil, err
	}
	device.Close() // the helper has the last copy: when it ends, no process waits for its answers
	if err := attach(ctx, process, tree, target); err != nil {
		process.Kill()
		if end := process.Wait(); end != nil {
			err = fmt.Errorf("%w; %w", err, end)
		}
		return nil, err
	}
	return process, nil
}

// checkScratch returns an error for a directory if fuse-overlayfs takes its path for a list.
func checkScratch(dir *os.File) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err == nil && strings.Contains(path, ":") {
		err = fmt.Errorf("path %q of the scratch directory contains ':', which separates layers", path)
	}
	return err
}

// attach waits for the helper's first answer and attaches its root to target.
func attach(ctx context.Context, process *helper.Process, tree int, target string) error {
	defer context.AfterFunc(ctx, process.Kill)()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(tree, &fs); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("wait for its first answer: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach to %s: %w", target, err)
	}
	return nil
}

// linkLayers makes the directory links with a link "0", "1", … to each layer, and returns the
// links' paths for the helper. Options have no way to quote a layer's ':', and with short names
// 500 layers are a text of a tenth of the longest argument.
func linkLayers(links string, lower []string) ([]string, error) {
	if err := os.Mkdir(links, 0o700); err != nil {
		return nil, err
	}
	paths := make([]string, len(lower))
	for i, dir := range lower {
		name := strconv.Itoa(i)
		if err := os.Symlink(dir, filepath.Join(links, name)); err != nil {
			return nil, err
		}
		paths[i] = scratchFile + "/l/" + name
	}
	return paths, nil
}

// options is the helper's option text. Nothing in it needs to be quoted. volatile: nothing is
// synced, because a root is gone when its app is.
func options(layers []string) string {
	return "lowerdir=" + strings.Join(layers, ":") + ",upperdir=" + scratchFile + "/upper,workdir=" + scratchFile + "/work,volatile"
}
