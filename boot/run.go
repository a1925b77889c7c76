package boot

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
)

// The steps that run the apps.

// listen starts to answer call-ins. It comes before the apps start, so that status works before
// the first start and attach works while an app starts.
func listen(_ context.Context, p *Pod) error {
	events, err := openEvents(names.EventsFile, p.Log)
	if err != nil {
		return err
	}
	p.Undo(events.close)
	p.events = events
	p.Supervisor = supervisor.New(supervisor.Config{
		Apps: p.Apps, Log: p.Log, Changed: events.changed,
		Restart: p.Plan.Config.Restart, Exit: p.Plan.Config.ExitPolicy, Grace: p.Plan.Config.GracePeriod,
	})
	listener, err := callins.Listen(names.ControlSocket)
	if err != nil {
		return err
	}
	server := &callins.Server{Handlers: p.handlers(), Log: p.Log}
	ctx, stop := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { server.Serve(ctx, listener) })
	p.Undo(func() error { stop(); served.Wait(); return nil })
	return nil
}

// runApps starts the apps and returns when the pod is over.
func runApps(ctx context.Context, p *Pod) error {
	if p.reserved != nil {
		<-p.reserved
	}
	p.code, p.failure = p.Supervisor.Run(ctx, p.ready)
	if lost := errors.Is(context.Cause(ctx), errNoInit) && !p.up; lost || p.failure != nil {
		return nil // last states would say that the pod was up
	}
	if err := p.writeLastStatus(); err != nil {
		p.Log.Warn("the apps' last states are not kept", "error", err)
	}
	return nil
}

// lastStatus is the file of the apps' last states.
const lastStatus = names.LogDir + "/" + names.LastStatus

// writeLastStatus keeps the apps' last states beside their logs, for a daemon that answers status
// after the pod's end.
func (p *Pod) writeLastStatus() error {
	text, err := callins.LastStatus(p.Supervisor)
	if err != nil {
		return err
	}
	return soon(func() error { return os.WriteFile(lastStatus, text, 0o640) })
}

// ready reports to the daemon that the pod is up: the daemon reads end of file when the
// supervisor and init have closed their copies of the ready pipe. The daemon then finds the starts of the apps in
// names.EventsFile.
func (p *Pod) ready() error {
	ready := p.Inherited.Ready
	if ready != nil {
		if err := p.events.flush(); err != nil {
			p.Log.Warn("changes of the apps' states not recorded yet", "error", err)
		}
		if err := p.Init.Up(); err != nil {
			return err // the pipe stays open: without init the pod is not up
		}
	}
	p.up = true
	p.Log.Info("pod is running", "apps", len(p.Apps))
	time.AfterFunc(settled, releaseStartMemory)
	if ready == nil {
		return nil
	}
	return ready.Close()
}
