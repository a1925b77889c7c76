package container

// #include "child.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"
)

// mask hides paths behind a null device and an empty folder.
func (a *assembly) mask(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	folder, done, err := a.maskFolder()
	if err != nil {
		return err
	}
	defer done()
	var masks [2]int
	for i, name := range []string{"null", "empty"} {
		t, err := openTree(filepath.Join(folder, name), "", 0, unix.MountAttr{
			Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE,
		})
		if err != nil {
			return err
		}
		masks[i] = a.hold(t.file)
	}
	for _, path := range paths {
		a.add(operation{
			kind: C.CHILD_MASK, flags: C.CHILD_IF_THERE,
			file: masks[0], other: masks[1], target: path, what: "mask " + path,
		})
	}
	return nil
}

// maskFolder returns the folder with the masks of the app, until done is called: the runtime's, or one on a file system
// for the app alone if it could make that writable, and so change the masks of its neighbours. The file system is in
// the supervisor's mounts meanwhile, because a detached mount cannot be copied before Linux 6.15.
func (a *assembly) maskFolder() (folder string, done func(), err error) {
	s := &a.container.spec
	if !s.Privileged && !slices.Contains(s.Process.Capabilities, "CAP_SYS_ADMIN") {
		return a.container.runtime.masks, func() {}, nil
	}
	if folder, err = os.MkdirTemp(a.container.runtime.state, "masks"); err != nil {
		return "", nil, err
	}
	done = func() {
		_ = unix.Unmount(folder, unix.MNT_DETACH) // there may be none
		_ = os.Remove(folder)
	}
	if err := mountMasks(folder); err != nil {
		done()
		return "", nil, err
	}
	return folder, done, nil
}

// makeMasks makes what hides masked paths. dir is on a file system without device nodes.
func (r *Runtime) makeMasks(dir string) error {
	r.masks = filepath.Join(dir, "masks")
	if err := os.Mkdir(r.masks, 0o755); err != nil {
		return err
	}
	return mountMasks(r.masks)
}

// mountMasks mounts a file system with a null device and an empty folder.
func mountMasks(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount masks: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		return err
	}
	null := filepath.Join(dir, "null")
	rule := devices.Rule{Type: devices.CharDevice, Major: 1, Minor: 3}
	err := makeNode(null, &devices.Device{FileMode: 0o666, Rule: rule})
	if errors.Is(err, os.ErrPermission) {
		err = os.WriteFile(null, nil, 0o444)
	}
	return err
}
