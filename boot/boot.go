// Package boot is a pod's way from its manifest to its end: it does, phase by phase, what
// package plan has decided, with the parts that it is given. boot.phases is the list, and
// the first thing to read.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"kurma.io/stager/callins"
	"kurma.io/stager/journal"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/reap"
	"kurma.io/stager/unionfs"
)

// Parts are what a stager is put together from. A fork that brings another part of its own
// changes it here.
type Parts struct {
	Log     *slog.Logger
	Runtime supervisor.Runtime
	Drivers []unionfs.Driver // in the order of the automatic choice; unionfs.Drivers has the usual ones
	Waiter  Waiter

	// Inherited are the descriptors that the daemon passed, see TakeDescriptors.
	Inherited Inherited

	// CallIns returns the supervisor's side of the call-ins, by the names of their requests.
	CallIns func(*supervisor.Pod, *plan.Pod) map[string]callins.Handler
}

// Waiter is the supervisor's line to the process that has started it, which the daemon
// waits for.
type Waiter interface {
	// Settle reports the namespaces that the pod wants, as in clone(2), and the
	// ready pipe, nil for none. It returns ErrOtherNamespaces where the supervisor runs in
	// others: it ends then, and is started again in those.
	Settle(namespaces uintptr, ready *os.File) error

	// Up reports that the pod is up, so that the waiter closes its copy of the ready
	// pipe. It is called once, and only if there is a ready pipe.
	Up() error
}

// ErrOtherNamespaces means that the supervisor will be started again, in the namespaces
// that the pod wants.
var ErrOtherNamespaces = errors.New("started in other namespaces than the pod's")

// Run takes the pod of the manifest at names.Manifest through its life, and returns the stager's
// exit code when it is over. ctx is done when the pod is to stop. The caller is the pod's PID 1, or
// with the host's PID namespace the parent of its orphans, in a mount namespace of its own
// whose root is the stager's. Nothing is left of the pod afterwards but its logs. An
// error is ErrOtherNamespaces, or says on one line why the pod did not start or did not end
// cleanly.
func Run(ctx context.Context, parts Parts) (code int, err error) {
	b := &boot{Parts: parts, log: parts.Log}
	return b.run(ctx, b.phases())
}

// boot is a pod on its way from its manifest to its end. A field is set by the
// phase that is named with it and only read afterwards.
type boot struct {
	Parts
	log *slog.Logger

	undos []func() error // what phases have done, to be undone backwards

	manifest *manifest.Manifest // decide
	plan     *plan.Pod          // decide
	sockets  [][]*os.File       // open sockets, by app
	journal  *journal.Journal   // open journal
	apps     []supervisor.App   // assemble apps
	pod      *supervisor.Pod    // listen

	code    int   // run apps: the stager's exit code
	failure error // run apps: why the pod's end was not a clean one
}

// phase is one step of a pod's way. do may call boot.undo, also when it fails later on.
type phase struct {
	name string
	do   func(context.Context) error
}

// phases are the way of a pod, in order: the list is the whole of it, from the claim of the
// root to the last app's end. A fork that changes what a start does begins here.
func (b *boot) phases() []phase {
	return []phase{
		{"claim root", b.claimRoot},
		{"decide", b.decide},
		{"start metadata service", b.startMetadata},
		{"make own view", b.makeView},
		{"prepare runtime", b.prepareRuntime},
		{"open journal", b.openJournal},
		{"limit network", b.limitNetwork},
		{"make volumes", b.makeVolumes},
		{"open sockets", b.openSockets},
		{"assemble apps", b.assembleApps},
		{"listen", b.listen},
		{"mount roots", b.mountRoots},
		{"guard own limits", b.guardLimits},
		{"run apps", b.runApps},
	}
}

// run takes the pod through its life and leaves nothing behind. A stop ends it between two
// phases, or with a phase that fails because of the stop, and is not an error.
func (b *boot) run(ctx context.Context, phases []phase) (code int, err error) {
	defer func() { err = errors.Join(err, b.undoAll()) }()
	for _, phase := range phases {
		if ctx.Err() != nil {
			return 0, nil
		}
		b.log.Debug("phase", "name", phase.name)
		if err := phase.do(ctx); err != nil {
			if ctx.Err() != nil {
				return 0, nil
			}
			return 1, err
		}
	}
	return b.code, b.failure
}

// undo has f called at the pod's end, before what was pushed earlier. What vanishes with the
// supervisor's process or mount namespace needs no undo.
func (b *boot) undo(f func() error) { b.undos = append(b.undos, f) }

func (b *boot) undoAll() error {
	var errs []error
	for _, f := range slices.Backward(b.undos) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// decide reads the manifest and plans the pod. It touches nothing but the report to the
// waiter, which starts the supervisor again where the pod wants other namespaces.
func (b *boot) decide(context.Context) error {
	var err error
	if b.manifest, err = readManifest(names.Manifest); err != nil {
		return err
	}
	if b.plan, err = plan.Decide(b.manifest, b.Runtime.Support(), unionfs.NamesOf(b.Drivers)); err != nil {
		return err
	}
	if err := b.Waiter.Settle(b.plan.Namespaces.CloneFlags(), b.Inherited.Ready); err != nil {
		return err
	}
	b.logPlan()
	return nil
}

func (b *boot) logPlan() {
	b.logFates("", b.plan.Fates)
	for _, warning := range b.plan.Warnings {
		b.log.Warn(warning)
	}
	for _, app := range b.plan.Apps {
		b.logFates(app.Name, app.Fates)
		for _, warning := range app.Warnings {
			b.log.Warn(warning, "app", app.Name)
		}
	}
}

func (b *boot) logFates(app string, fates []plan.IsolatorFate) {
	for _, f := range fates {
		level := slog.LevelInfo
		if f.Fate != plan.Enforced {
			level = slog.LevelWarn
		}
		b.log.Log(context.Background(), level, "isolator", "app", app, "name", f.Name, "fate", f.Fate, "why", f.Why)
	}
}

// readManifest reads and checks the manifest.
func readManifest(path string) (*manifest.Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer f.Close()
	return manifest.Read(f)
}

// listen answers call-ins from here on: status before the first app starts, and attach to an
// app that is starting.
func (b *boot) listen(context.Context) error {
	reaper, err := reap.New()
	if err != nil {
		return err
	}
	b.undo(func() error { reaper.Close(); return nil })
	b.pod = supervisor.NewPod(supervisor.Config{
		Apps: b.apps, Reaper: reaper, Log: b.log,
		Restart: b.plan.Config.Restart, Exit: b.plan.Config.ExitPolicy, Grace: b.plan.Config.GracePeriod,
	})
	listener, err := callins.Listen(names.ControlSocket)
	if err != nil {
		return err
	}
	server := &callins.Server{Handlers: b.CallIns(b.pod, b.plan), Log: b.log}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	b.undo(func() error { stop(); return <-served })
	return nil
}

// runApps starts the apps and returns when the pod is over.
func (b *boot) runApps(ctx context.Context) error {
	b.code, b.failure = b.pod.Run(ctx, b.ready)
	return nil
}

// ready tells the daemon that the pod is up: it sees end of file when the
// waiter has closed its copy as well.
func (b *boot) ready() error {
	b.log.Info("pod is running", "apps", len(b.apps))
	defer func() { go releaseStartMemory() }()
	if b.Inherited.Ready == nil {
		return nil
	}
	return errors.Join(b.Inherited.Ready.Close(), b.Waiter.Up())
}
