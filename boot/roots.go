package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/unionfs"
)

// mountRoots makes every app's root file system, and at the same time the pod's cgroup: both
// take about as long.
func (b *boot) mountRoots(ctx context.Context) error {
	made := make(chan error, 1)
	go func() { made <- b.Runtime.MakePod() }()
	return errors.Join(b.mountAll(ctx), <-made)
}

// mountAll mounts the roots, several at once.
func (b *boot) mountAll(ctx context.Context) error {
	if err := prepareScratch(); err != nil {
		return err
	}
	driver, err := b.selectDriver()
	if err != nil {
		return err
	}
	resolver, err := os.ReadFile(names.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read resolver configuration: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelMounts)
	for _, app := range b.plan.Apps {
		group.Go(func() error {
			return b.makeRoot(ctx, driver, app, resolver)
		})
	}
	return group.Wait()
}

// makeRoot mounts one app's root and prepares it.
func (b *boot) makeRoot(ctx context.Context, driver unionfs.Driver, app plan.App, resolver []byte) error {
	log, root := b.log.With("app", app.Name), rootOf(app.Name)
	if err := mountRoot(ctx, driver, app, root); err != nil {
		return fmt.Errorf("mount root of app %q: %w", app.Name, err)
	}
	if err := rootfs.AddEtcFiles(root, resolver, b.plan.Hostname); err != nil {
		log.Warn("the app lacks files in /etc", "error", err)
	}
	if err := rootfs.PrepareTargets(root, app.Spec.Mounts, log); err != nil {
		return fmt.Errorf("app %q: %w", app.Name, err)
	}
	return nil
}

// rootOf returns the path at which an app's root file system is mounted.
func rootOf(app string) string { return filepath.Join(names.PrivateDir, "roots", app) }

// scratchOf returns the folder in which the app's root file system stores what the app writes.
func scratchOf(app string) string { return filepath.Join(names.ScratchDir, app) }

// parallelMounts limits how many roots are made at once: the copy driver is limited by the disk,
// the others by nothing.
const parallelMounts = 4

func (b *boot) selectDriver() (unionfs.Driver, error) {
	var layers []string
	for _, app := range b.plan.Apps {
		for _, layer := range app.LayersIn(names.LayersDir) {
			layers = append(layers, layer.Dir)
		}
	}
	choice, err := unionfs.Select(b.Drivers, b.plan.Config.GraphStorage, names.ScratchDir, layers)
	if err != nil {
		return nil, err
	}
	if choice.Rejected != nil {
		b.log.Warn("the driver "+choice.Driver.Name()+" makes the root file systems: no other one works here", "error", choice.Rejected)
	}
	for _, note := range choice.Notes {
		b.log.Warn("the driver "+choice.Driver.Name()+" makes the root file systems, with a limitation", "why", note)
	}
	b.log.Info("root file systems", "driver", choice.Driver.Name())
	return choice.Driver, nil
}

func mountRoot(ctx context.Context, driver unionfs.Driver, app plan.App, target string) error {
	scratch := scratchOf(app.Name)
	for _, dir := range []string{scratch, target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return driver.Mount(ctx, unionfs.Root{App: app.Name, Layers: app.LayersIn(names.LayersDir), Scratch: scratch, Target: target})
}

// prepareScratch empties the folder for upper and work directories. If the stager's root cannot
// hold an upper directory, because it is itself an overlay or aufs, prepareScratch mounts a tmpfs
// there. Whether a driver can use the folder is for its probe to decide.
func prepareScratch() error {
	if err := rmtree.Remove(names.ScratchDir); err != nil {
		return fmt.Errorf("empty scratch folder: %w", err)
	}
	if err := os.MkdirAll(names.ScratchDir, 0o711); err != nil {
		return fmt.Errorf("make scratch folder: %w", err)
	}
	stacked, err := unionfs.Stacked(names.ScratchDir)
	if err != nil {
		return fmt.Errorf("look at scratch folder: %w", err)
	}
	if stacked {
		if err := unix.Mount("tmpfs", names.ScratchDir, "tmpfs", 0, "mode=711"); err != nil {
			return fmt.Errorf("mount tmpfs for scratch folder: %w", err)
		}
	}
	return nil
}
