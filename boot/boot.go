// Package boot takes a pod from its manifest to its end. It carries out what package plan has
// decided, phase by phase, with the parts that its caller passes. Read boot.phases first: it is
// the list of the phases.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/boot/journal"
	"kurma.io/stager/callins"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/reap"
	"kurma.io/stager/unionfs"
)

// Parts are the exchangeable parts of a stager. A fork passes its own runtime, drivers or
// call-ins to Run here.
type Parts struct {
	Log *slog.Logger
	// LimitLog limits the file of Log's messages, in bytes, as the manifest's log.maxSize says; nil if
	// it cannot be limited.
	LimitLog func(bytes int64)

	Version string // of the stager, which logs it at the start; "" logs nothing
	Runtime spec.Runtime
	Drivers []unionfs.Driver // in the order of the automatic choice; unionfs.Drivers has the usual ones
	Waiter  Waiter

	// Inherited are the descriptors that the daemon passed, see TakeDescriptors.
	Inherited Inherited

	// CallIns returns the supervisor's side of the call-ins, by the name of the request.
	CallIns func(*supervisor.Pod, *plan.Pod) map[string]callins.Handler
}

// Waiter is the supervisor's connection to the waiter: the process that the daemon waits for,
// and that has started the supervisor.
type Waiter interface {
	// Settle reports the namespaces that the pod needs, as clone(2) flags, and passes the
	// ready pipe, nil for none. It returns ErrOtherNamespaces if the supervisor runs in other
	// namespaces: the supervisor then ends, and the waiter starts it again in the right ones.
	Settle(namespaces uintptr, ready *os.File) error

	// Up reports that the pod is up; the waiter then closes its copy of the ready pipe.
	// Run calls Up at most once, and only if there is a ready pipe.
	Up() error
}

// ErrOtherNamespaces means that the waiter will start the supervisor again, in the namespaces
// that the pod needs.
var ErrOtherNamespaces = errors.New("started in other namespaces than the pod's")

// Run runs the pod of the manifest at names.Manifest until its end, and returns the stager's
// exit code. It stops the pod when ctx is done. The caller must be the pod's PID 1, or in the
// host's PID namespace the parent of the pod's orphans, in its own mount namespace with the
// stager's root. Run leaves nothing of the pod but its logs. An error is ErrOtherNamespaces, or
// says on one line why the pod did not start or did not end cleanly.
func Run(ctx context.Context, parts Parts) (code int, err error) {
	b := &boot{Parts: parts, log: parts.Log}
	return b.run(ctx, b.phases())
}

// boot is the state of one call of Run. The comment of a field names the phase that sets it;
// later phases only read it.
type boot struct {
	Parts
	log *slog.Logger

	undos []func() error // run calls them at the end, the last one first

	manifest *manifest.Manifest // decide
	plan     *plan.Pod          // decide
	reserved <-chan struct{}    // reserve threads: closed when they are made
	sockets  [][]*os.File       // open sockets, by app
	journal  *journal.Journal   // open journal
	apps     []supervisor.App   // assemble apps
	pod      *supervisor.Pod    // listen

	code    int   // run apps: the stager's exit code
	failure error // run apps: why the pod did not end cleanly
}

// phase is one step of Run. do may call boot.undo, even if it then fails.
type phase struct {
	name string
	do   func(context.Context) error
}

// phases lists all steps of Run in order, from claiming the root to the last app's end. A fork
// that changes the start of a pod begins here.
func (b *boot) phases() []phase {
	return []phase{
		{"claim root", b.claimRoot},
		{"decide", b.decide},
		{"reserve threads", b.reserveThreads},
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

// run runs the phases and then undoes them. If ctx is done, run ends between two phases, or when
// a phase fails because of the stop; that is not an error.
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

// undo registers f to be called at the pod's end, before the functions registered earlier. A
// resource that vanishes with the supervisor's process or mount namespace needs no undo.
func (b *boot) undo(f func() error) { b.undos = append(b.undos, f) }

func (b *boot) undoAll() error {
	var errs []error
	for _, f := range slices.Backward(b.undos) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// decide reads the manifest, plans the pod, and reports the pod's namespaces to the waiter. It
// changes nothing else. The waiter starts the supervisor again if the pod needs other
// namespaces.
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
	if b.LimitLog != nil {
		b.LimitLog(b.plan.Config.Log.MaxSize)
	}
	b.logPlan()
	return nil
}

func (b *boot) logPlan() {
	if b.Version != "" {
		b.log.Info("stager", "version", b.Version)
	}
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

// listen starts to answer call-ins. It comes before the apps start, so that status works before
// the first start and attach works while an app starts.
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
	<-b.reserved
	b.code, b.failure = b.pod.Run(ctx, b.ready)
	if b.failure != nil {
		return nil
	}
	if err := b.writeLastStatus(); err != nil {
		b.log.Warn("the apps' last states are not kept", "error", err)
	}
	return nil
}

// writeLastStatus keeps the apps' last states beside their logs, for a daemon that answers status
// after the pod's end.
func (b *boot) writeLastStatus() error {
	text, err := callins.LastStatus(b.pod)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(names.LogDir, names.LastStatus), text, 0o640)
}

// ready reports to the daemon that the pod is up: the daemon reads end of file when the
// supervisor and the waiter have closed their copies of the ready pipe.
func (b *boot) ready() error {
	b.log.Info("pod is running", "apps", len(b.apps))
	defer func() { go releaseStartMemory() }()
	if b.Inherited.Ready == nil {
		return nil
	}
	return errors.Join(b.Inherited.Ready.Close(), b.Waiter.Up())
}
