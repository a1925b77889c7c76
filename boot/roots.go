package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/unionfs"
)

// mountRoots makes every app's root file system, and at the same time the pod's cgroup: both
// take about as long.
func mountRoots(ctx context.Context, p *Pod) error {
	made := make(chan error, 1)
	go func() { made <- p.Runtime.MakePod() }()
	err := errors.Join(p.mountAll(ctx), <-made)
	if err == nil && p.Plan.UserNamespace != nil && p.reserved != nil {
		err = reserveThreads(ctx, p) // those of AsOwner have ended
	}
	return err
}

// mountAll mounts the roots, several at once.
func (p *Pod) mountAll(ctx context.Context) error {
	if err := prepareScratch(); err != nil {
		return err
	}
	if err := p.mapOwners(names.LayersDir, names.ScratchDir); err != nil {
		return err
	}
	var driver unionfs.Driver
	if err := p.AsOwner(func() (err error) {
		driver, err = p.selectDriver()
		return err
	}); err != nil {
		return err
	}
	resolver, err := os.ReadFile(names.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read resolver configuration: %w", err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		p.Log.Warn("the pod's addresses are not in /etc/hosts", "error", err)
	}
	hosts := rootfs.PodHosts(p.Plan.Hostname, addresses)
	group, mounting := errgroup.WithContext(ctx)
	group.SetLimit(parallelMounts)
	for _, app := range p.Plan.Apps {
		group.Go(func() error {
			return p.AsOwner(func() error { return p.makeRoot(mounting, driver, app, resolver, hosts) })
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return p.AsOwner(func() error { return p.prepareMounts(ctx) })
}

// makeRoot mounts one app's root and adds the files in /etc.
func (p *Pod) makeRoot(ctx context.Context, driver unionfs.Driver, app plan.App, resolver, hosts []byte) error {
	log, root := p.Log.With("app", app.Name), rootOf(app.Name)
	if err := mountRoot(ctx, driver, app, root); err != nil {
		return fmt.Errorf("mount root of app %q: %w", app.Name, err)
	}
	if err := rootfs.AddEtcFiles(root, resolver, p.Plan.Hostname, hosts); err != nil {
		log.Warn("the app lacks files in /etc", "error", err)
	}
	return nil
}

// parallelMounts limits how many roots are made at once: the copy driver is limited by the disk,
// the others by nothing.
const parallelMounts = 4

func (p *Pod) selectDriver() (unionfs.Driver, error) {
	var layers []string
	for _, app := range p.Plan.Apps {
		for _, layer := range app.LayersIn(names.LayersDir) {
			layers = append(layers, layer.Dir)
		}
	}
	choice, err := unionfs.Select(p.Drivers, p.Plan.Config.GraphStorage, names.ScratchDir, layers)
	if err != nil {
		return nil, err
	}
	if choice.Rejected != nil {
		p.Log.Warn("the driver "+choice.Driver.Name()+" makes the root file systems: no other one works here",
			"error", choice.Rejected)
	}
	for _, note := range choice.Notes {
		p.Log.Warn("the driver "+choice.Driver.Name()+" makes the root file systems, with a limitation", "why", note)
	}
	p.Log.Info("root file systems", "driver", choice.Driver.Name())
	return choice.Driver, nil
}

func mountRoot(ctx context.Context, driver unionfs.Driver, app plan.App, target string) error {
	scratch := scratchOf(app.Name)
	for _, dir := range []string{scratch, target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	root := unionfs.Root{App: app.Name, Layers: app.LayersIn(names.LayersDir), Scratch: scratch, Target: target}
	return driver.Mount(ctx, root)
}

// prepareScratch empties the folder for upper and work directories. If the stager's root cannot
// hold an upper directory, because it is itself an overlay or aufs, prepareScratch mounts a tmpfs
// there. Whether a driver can use the folder is for its probe to decide.
func prepareScratch() error {
	if err := rootfs.Empty(names.ScratchDir, 0o711); err != nil {
		return err
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
