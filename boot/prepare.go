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
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

// The steps that prepare what the apps share.

// prepareRuntime prepares the runtime, which also kills processes that an earlier stager left in
// the pod's cgroup.
func prepareRuntime(_ context.Context, p *Pod) error {
	p.Undo(p.Runtime.Close)
	if runtime, ok := p.Runtime.(spec.Selectable); ok {
		runtime.SelectStarts(p.Plan.Config.Runtime)
	} else if p.Plan.Config.Runtime != "" {
		p.Log.Warn("stagerConfig.runtime has no effect: this stager has one runtime")
	}
	return p.Runtime.Prepare(names.RuntimeDir, p.Plan.Resources)
}

// startMetadata starts the pod's metadata service. Every process of an app has its URL in the environment. Without a
// loopback interface the apps have no metadata service, and startMetadata logs a warning.
func startMetadata(_ context.Context, p *Pod) error {
	if !p.Plan.Config.ExecutorVariables {
		return nil // no app would know of it
	}
	data := p.Plan.Metadata
	data.UUID = p.uuid
	server, err := metadata.Start(data, p.Log)
	if errors.Is(err, metadata.ErrNoLoopback) {
		p.Log.Warn("apps have no metadata service and no AC_METADATA_URL", "why", err)
		return nil
	}
	if err != nil {
		return err
	}
	p.Undo(server.Close)
	p.metadataURL = server.URL()
	return nil
}

// openJournal connects the apps' output to the journal if the configuration asks for it.
func openJournal(_ context.Context, p *Pod) error {
	if p.Plan.Config.Log.Driver == plan.LogToJournal {
		p.journal = journal.Open(names.JournalSocket, journal.Origin{Name: p.Plan.Name, UUID: p.uuid}, p.Log)
	}
	p.Undo(p.journal.Close)
	return nil
}

// limitNetwork limits the pod's interfaces. If it cannot limit one, the fates of the isolators
// report it.
func limitNetwork(_ context.Context, p *Pod) error {
	if p.Plan.NetworkBandwidth == 0 {
		return nil
	}
	err := netlimit.Limit(p.Plan.NetworkBandwidth)
	if err == nil {
		return nil
	}
	if p.Plan.Config.StrictIsolators {
		return fmt.Errorf("limit network, as stagerConfig.strictIsolators requires: %w", err)
	}
	p.Log.Warn("not every interface of the pod is limited", "error", err)
	p.unlimited = err.Error()
	return nil
}

// openSockets opens the sockets that the apps inherit.
func openSockets(_ context.Context, p *Pod) error {
	p.sockets = make(map[string][]*os.File)
	for _, app := range p.Plan.Apps {
		files, err := activation.OpenSockets(app.Sockets)
		p.sockets[app.Name] = files
		for _, f := range files {
			p.Undo(func() error { _ = f.Close(); return nil }) // the app's end has closed it, unless a step fails
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
	}
	return nil
}
