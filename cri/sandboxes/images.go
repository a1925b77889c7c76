package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/unionfs"

	"golang.org/x/sys/unix"
)

// MountImage mounts the layers of an image, the topmost first, read-only in the folder of that name in dir, and returns
// the path of the image's root. The upper directory, which stays empty, is in memory: Decompose removes all by one
// unmount, also what an error or the end of the server has left.
func MountImage(ctx context.Context, dir, name string, layers []string) (string, error) {
	top := filepath.Join(dir, name)
	r := unionfs.Root{App: name, Scratch: filepath.Join(top, "scratch"), Target: filepath.Join(top, "root")}
	for _, layer := range layers {
		r.Layers = append(r.Layers, unionfs.Layer{Dir: layer})
	}
	if err := os.MkdirAll(top, 0o700); err != nil {
		return "", err
	}
	if err := unix.Mount("image", top, "tmpfs", 0, "mode=0700,size=1m"); err != nil {
		return "", &os.PathError{Op: "mount", Path: top, Err: err}
	}
	if err := errors.Join(os.Mkdir(r.Scratch, 0o700), os.Mkdir(r.Target, 0o700)); err != nil {
		return "", err
	}
	if err := (unionfs.Overlay{}).Mount(ctx, r); err != nil {
		return "", err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, r.Target, 0, &attr); err != nil {
		return "", fmt.Errorf("make %s read-only: %w", r.Target, os.NewSyscallError("mount_setattr", err))
	}
	return r.Target, nil
}
