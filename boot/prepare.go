package boot

import (
	"context"
	"errors"
	"fmt"
	"os"

	"kurma.io/stager/boot/activation"
	"kurma.io/stager/boot/journal"
	"kurma.io/stager/boot/metadata"
	"kurma.io/stager/boot/netlimit"
	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
)

// The phases that prepare what the apps share.

// prepareRuntime prepares the runtime, which also kills processes that an earlier stager left in
// the pod's cgroup.
func (b *boot) prepareRuntime(context.Context) error {
	b.undo(b.Runtime.Close)
	return b.Runtime.Prepare(names.RuntimeDir, b.plan.Resources)
}

// startMetadata starts the pod's metadata service, and sets its URL in the environment of every
// process. The pod's UUID is that of plan.PodUUID. Without a loopback interface the apps have no
// metadata service, and startMetadata logs a warning.
func (b *boot) startMetadata(context.Context) error {
	cgroups, _ := os.ReadFile("/proc/self/cgroup") // on an error the pod gets a new UUID
	server, err := metadata.Start(plan.Metadata(b.manifest, plan.PodUUID(string(cgroups))), b.log)
	if errors.Is(err, metadata.ErrNoLoopback) {
		b.log.Warn("apps have no metadata service and no AC_METADATA_URL", "why", err)
		return nil
	}
	if err != nil {
		return err
	}
	b.undo(server.Close)
	b.plan.SetMetadataURL(server.URL())
	return nil
}

// openJournal connects the apps' output to the journal if the configuration asks for it.
func (b *boot) openJournal(context.Context) error {
	b.journal = new(journal.Journal)
	if b.plan.Config.Log.Driver == plan.LogToJournal {
		b.journal = journal.Open(names.JournalSocket, b.log)
	}
	b.undo(b.journal.Close)
	return nil
}

// limitNetwork limits the pod's interfaces. If it cannot limit one, the fates of the isolators
// report it.
func (b *boot) limitNetwork(context.Context) error {
	if b.plan.NetworkBandwidth == 0 {
		return nil
	}
	err := netlimit.Limit(b.plan.NetworkBandwidth)
	if err == nil {
		return nil
	}
	if b.plan.Config.StrictIsolators {
		return fmt.Errorf("limit network, as stagerConfig.strictIsolators requires: %w", err)
	}
	b.log.Warn("not every interface of the pod is limited", "error", err)
	b.plan.Degrade("resource/network-bandwidth", err.Error())
	return nil
}

// makeVolumes makes the folders of the empty volumes, and finds devices among the host volumes.
func (b *boot) makeVolumes(context.Context) error {
	if err := rootfs.ClearEmptyVolumes(names.EmptyVolumesDir); err != nil {
		return err
	}
	for i := range b.plan.Apps {
		app := &b.plan.Apps[i]
		devices, err := rootfs.CheckSources(app.Sources, os.Lstat)
		if err == nil {
			err = rootfs.MakeEmptyVolumes(app.Volumes)
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
		app.Spec.Devices = devices
		rootfs.OpenDevices(app.Spec.Mounts, os.Lstat)
	}
	return nil
}

// openSockets opens the sockets that the apps inherit.
func (b *boot) openSockets(context.Context) error {
	for _, app := range b.plan.Apps {
		files, err := activation.OpenSockets(app.Sockets)
		b.sockets = append(b.sockets, files)
		for _, f := range files {
			b.undo(f.Close)
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
	}
	return nil
}
