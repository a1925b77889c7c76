package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/unionfs"
)

// guestRoot is the folder that becomes the guest's root. What is in it is what the guest
// has of this machine:
//
//	manifest, etc/resolv.conf   copies
//	roots/APP                   the apps' roots, mounted here by a unionfs.Driver
//	volumes/                    the pod's volumes, with what is mounted in them
//	var/log/…                   the apps' logs
//
// Anything else is mount points, and what the supervisor in the guest makes there.
const guestRoot = names.RunDir + "/guest"

// rootOf is where the guest finds an app's root.
func rootOf(app string) string { return filepath.Join("/roots", app) }

// claim makes sure that no other stager runs in this root: this one would empty its
// folders. The lock ends with this process.
func (s *stager) claim(context.Context) error {
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("claim root: %w", err)
	}
	if errors.Is(unix.Flock(root, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return errors.New("a stager runs in this root already")
	}
	return nil
}

// share fills guestRoot.
func (s *stager) share(ctx context.Context) error {
	if err := os.MkdirAll(names.RunDir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := rootfs.Empty(guestRoot, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{"/etc", "/proc", "/sys", "/dev", "/roots", names.RunDir} {
		if err := os.MkdirAll(filepath.Join(guestRoot, dir), 0o755); err != nil {
			return fmt.Errorf("make shared folder: %w", err)
		}
	}
	for _, file := range []string{names.Manifest, names.ResolvConf} {
		if err := s.copyFile(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(names.LogDir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	for _, dir := range []string{names.VolumesDir, names.LogDir} {
		if err := s.bind(dir); err != nil {
			return err
		}
	}
	if err := s.refuseDevices(); err != nil {
		return err
	}
	return s.mountRoots(ctx)
}

// copyFile puts a file at the same path into the guest's root, if there is one.
func (s *stager) copyFile(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(guestRoot, path), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", path, err)
	}
	return nil
}

// bind mounts a folder, with what is mounted in it, at the same path in the guest's root,
// if there is one.
func (s *stager) bind(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	target := filepath.Join(guestRoot, dir)
	err := os.MkdirAll(target, 0o755)
	if err == nil {
		err = unix.Mount(dir, target, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// refuseDevices refuses volumes that are devices: to the guest, their numbers
// are those of devices of its own.
func (s *stager) refuseDevices() error {
	for _, app := range s.plan.Apps {
		devices, err := rootfs.CheckSources(app.Sources, os.Lstat)
		if err == nil && len(devices) > 0 {
			err = errors.New("a volume is a device, and a guest has none of this machine's")
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
	}
	return nil
}

func (s *stager) mountRoots(ctx context.Context) error {
	if err := rootfs.Empty(names.ScratchDir, 0o711); err != nil {
		return err
	}
	var layers []string
	for _, app := range s.plan.Apps {
		for _, layer := range app.Layers {
			layers = append(layers, filepath.Join(names.LayersDir, layer.ID))
		}
	}
	choice, err := unionfs.Select(unionfs.Drivers(), s.plan.Config.GraphStorage, names.ScratchDir, layers)
	if err != nil {
		return err
	}
	if choice.Rejected != nil {
		s.log.Warn("the driver "+choice.Driver.Name()+" makes the root file systems: no other one works here", "error", choice.Rejected)
	}
	s.driver = choice.Driver.Name()
	for _, app := range s.plan.Apps {
		if err := mountRoot(ctx, choice.Driver, app); err != nil {
			return fmt.Errorf("mount root of app %q: %w", app.Name, err)
		}
	}
	return nil
}

func mountRoot(ctx context.Context, driver unionfs.Driver, app plan.App) error {
	root := unionfs.Root{
		App:     app.Name,
		Scratch: filepath.Join(names.ScratchDir, app.Name),
		Target:  filepath.Join(guestRoot, rootOf(app.Name)),
	}
	for _, dir := range []string{root.Scratch, root.Target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, layer := range app.Layers {
		root.Layers = append(root.Layers, unionfs.Layer{Dir: filepath.Join(names.LayersDir, layer.ID), Filter: layer.Filter})
	}
	return driver.Mount(ctx, root)
}
