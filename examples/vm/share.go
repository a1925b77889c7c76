package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/rmtree"
	"kurma.io/stager/rootfs"
	"kurma.io/stager/unionfs"
)

// guestRoot is the folder that becomes the guest's root. What is in it is what the guest
// has of this machine:
//
//	manifest          a copy
//	roots/APP         the apps' roots, mounted here by a unionfs.Driver
//	volumes/          the pod's volumes, with what is mounted in them
//	run/…-volumes/    the empty volumes
//	proc, sys, dev, run/…   mount points
const guestRoot = names.RunDir + "/guest"

// rootOf is where the guest finds an app's root.
func rootOf(app string) string { return filepath.Join("/roots", app) }

// share fills guestRoot.
func (s *stager) share(ctx context.Context) error {
	if err := rmtree.Remove(guestRoot); err != nil {
		return fmt.Errorf("empty shared folder: %w", err)
	}
	for _, dir := range []string{names.VolumesDir, names.EmptyVolumesDir, "/proc", "/sys", "/dev", "/roots", names.RunDir} {
		if err := os.MkdirAll(filepath.Join(guestRoot, dir), 0o755); err != nil {
			return fmt.Errorf("make shared folder: %w", err)
		}
	}
	if err := os.Chmod(names.RunDir, 0o700); err != nil {
		return fmt.Errorf("make shared folder: %w", err)
	}
	text, err := os.ReadFile(names.Manifest)
	if err == nil {
		err = os.WriteFile(filepath.Join(guestRoot, names.Manifest), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("copy manifest: %w", err)
	}
	if err := s.makeVolumes(); err != nil {
		return err
	}
	return s.mountRoots(ctx)
}

// makeVolumes makes the empty volumes' folders and shares all volumes.
func (s *stager) makeVolumes() error {
	if err := rootfs.ClearEmptyVolumes(names.EmptyVolumesDir); err != nil {
		return err
	}
	for _, app := range s.plan.Apps {
		devices, err := rootfs.CheckSources(app.Sources, os.Lstat)
		if err == nil && len(devices) > 0 {
			err = errors.New("a volume is a device, and a guest has none of this machine's")
		}
		if err == nil {
			err = rootfs.MakeEmptyVolumes(app.Volumes)
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
	}
	for _, dir := range []string{names.VolumesDir, names.EmptyVolumesDir} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := unix.Mount(dir, filepath.Join(guestRoot, dir), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("share %s: %w", dir, err)
		}
	}
	return nil
}

func (s *stager) mountRoots(ctx context.Context) error {
	if err := rmtree.Remove(names.ScratchDir); err != nil {
		return fmt.Errorf("empty scratch folder: %w", err)
	}
	if err := os.MkdirAll(names.ScratchDir, 0o711); err != nil {
		return fmt.Errorf("make scratch folder: %w", err)
	}
	var layers []string
	for _, app := range s.plan.Apps {
		for _, layer := range app.Layers {
			layers = append(layers, filepath.Join(names.LayersDir, layer.ID))
		}
	}
	choice, err := unionfs.Select(s.plan.Config.GraphStorage, names.ScratchDir, layers)
	if err != nil {
		return err
	}
	for _, reason := range choice.Rejected {
		s.log.Warn("file system not used", "reason", reason)
	}
	s.log.Info("root file systems", "driver", choice.Driver.Name())
	resolver, err := os.ReadFile(names.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read resolver configuration: %w", err)
	}
	for _, app := range s.plan.Apps {
		if err := s.mountRoot(ctx, choice.Driver, app, resolver); err != nil {
			return fmt.Errorf("mount root of app %q: %w", app.Name, err)
		}
	}
	return nil
}

func (s *stager) mountRoot(ctx context.Context, driver unionfs.Driver, app plan.App, resolver []byte) error {
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
	if err := driver.Mount(ctx, root); err != nil {
		return err
	}
	log := s.log.With("app", app.Name)
	if err := rootfs.AddEtcFiles(root.Target, resolver, s.plan.Hostname); err != nil {
		log.Warn("the app lacks files in /etc", "error", err)
	}
	return rootfs.PrepareTargets(root.Target, app.Spec.Mounts, log)
}
