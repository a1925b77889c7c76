package boot

import (
	"context"
	"errors"
	"fmt"
	"os"

	"kurma.io/stager/activation"
	"kurma.io/stager/journal"
	"kurma.io/stager/metadata"
	"kurma.io/stager/names"
	"kurma.io/stager/netlimit"
	"kurma.io/stager/plan"
	"kurma.io/stager/rootfs"
)

// What the apps share, and what they find ready when they start.

// prepareRuntime makes the runtime ready. Processes that a stager before this one has left in
// the pod's cgroup are killed.
func (b *boot) prepareRuntime(context.Context) error {
	b.undo(b.Runtime.Close)
	return b.Runtime.Prepare(names.PrivateDir, b.plan.Resources)
}

// startMetadata starts the pod's metadata service, so that its URL is in every process's
// environment. The pod has the UUID by which the daemon has named the pod's cgroup, or a new one.
// Without a loopback interface the apps have no service, which is logged.
func (b *boot) startMetadata(context.Context) error {
	cgroups, _ := os.ReadFile("/proc/self/cgroup") // without it the pod has a UUID of its own
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

// openJournal connects the apps' output to the journal where the configuration asks for it.
func (b *boot) openJournal(context.Context) error {
	b.journal = new(journal.Journal)
	if b.plan.Config.Log.Driver == plan.LogToJournal {
		b.journal = journal.Open(names.JournalSocket, b.log)
	}
	b.undo(b.journal.Close)
	return nil
}

// limitNetwork limits the pod's interfaces, and reports in its isolators' fates what it could
// not limit.
func (b *boot) limitNetwork(context.Context) error {
	if b.plan.NetworkBandwidth == 0 {
		return nil
	}
	err := netlimit.Limit(b.plan.NetworkBandwidth)
	if err == nil {
		return nil
	}
	if b.plan.Config.StrictIsolators {
		return fmt.Errorf("limit network, as stagerConfig.strictIsolators asks for: %w", err)
	}
	b.log.Warn("the network's limit is not what it should be", "error", err)
	b.plan.Degrade("resource/network-bandwidth", err.Error())
	return nil
}

// makeVolumes makes the empty volumes' folders, and finds the devices among the host volumes.
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
	}
	return nil
}

// openSockets opens the sockets that apps find open when they start.
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
