package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/boot/journal"
	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/callins"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
)

// Parts are the exchangeable parts of a stager.
type Parts struct {
	Log *slog.Logger
	// LimitLog limits the file of Log's messages, in bytes, as the manifest's log.maxSize says; nil if
	// it cannot be limited.
	LimitLog func(bytes int64)

	Version string // of the stager, which logs it at the start; "" logs nothing
	Runtime spec.Runtime
	Drivers []unionfs.Driver // in the order of the automatic choice; unionfs.Drivers has the usual ones
	Init    Init

	// Inherited are the descriptors that the daemon passed, see TakeDescriptors.
	Inherited Inherited

	// Handlers returns the supervisor's side of further call-ins, by the name of the request, or of others in place of
	// the standard ones; nil for none. The step "listen" calls it.
	Handlers func(*Pod) map[string]callins.Handler

	Rows plan.Rows // isolators, configuration keys and annotations beside the standard ones
}

// Init is the pod's PID 1, or in the host's PID namespace the parent of its orphans: package pid1 has one in C.
type Init interface {
	// Begin makes init in new namespaces, as in clone(2), and passes it the ready pipe, nil for none. Run calls it once,
	// before all of the following.
	Begin(namespaces uintptr, ready *os.File) error

	// PID is init's number in the supervisor's PID namespace.
	PID() int

	// In calls do on a thread in init's IPC and UTS namespaces.
	In(do func() error) error

	// Up reports that the pod is up: init closes its copy of the ready pipe. Run calls Up at most once, and only if
	// there is a ready pipe.
	Up() error

	// Lost is closed when init has ended before Close.
	Lost() <-chan struct{}

	// Close ends init. Supervise calls it after Run, also if Begin was not called or has failed.
	Close() error
}

// Pod is the state of one call of Run. The comment of a field names the step that sets the field; later steps only
// read it.
type Pod struct {
	Parts                             // Run
	Manifest   *manifest.Manifest     // decide; no step changes it
	Plan       *plan.Pod              // likewise
	Apps       []supervisor.App       // assemble apps, in the order of Plan.Apps
	Supervisor *supervisor.Supervisor // listen

	undos []func() error // Undo; Run calls them at the end, the last one first

	uuid        string                   // decide
	events      *appEvents               // listen
	reserved    <-chan struct{}          // reserve threads: closed when they are made
	metadataURL string                   // start metadata service; "" for none
	journal     *journal.Journal         // open journal
	unlimited   string                   // limit network: why not every interface has its limit; "" if each has
	devices     map[string][]spec.Device // make volumes, by app: the volumes that are devices
	sockets     map[string][]*os.File    // open sockets, by app

	up      bool  // run apps: the daemon was told that the pod is up
	code    int   // run apps: the stager's exit code
	failure error // run apps: why the pod did not end cleanly
}

// Undo registers f to be called at the pod's end, before the functions registered earlier. A
// resource that vanishes with the supervisor's process or mount namespace needs no undo.
func (p *Pod) Undo(f func() error) { p.undos = append(p.undos, f) }

func (p *Pod) undoAll() error {
	var errs []error
	for _, f := range slices.Backward(p.undos) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Isolators returns the fates of an app's isolators, as planned and as the steps found them. It returns false if the
// pod does not have the app.
func (p *Pod) Isolators(app string) (plan.Fates, bool) {
	fates, ok := p.Plan.Isolators(app)
	if p.unlimited != "" {
		fates = fates.Degraded("resource/network-bandwidth", p.unlimited)
	}
	return fates, ok
}

// CommandEnv returns the environment of a command that the call-in run executes in the app, beside the variables of
// its settings.
func (p *Pod) CommandEnv(app string) []string {
	return plan.WithMetadata(p.Plan.CommandEnv(app), p.metadataURL)
}

// handlers returns the supervisor's side of the call-ins.
func (p *Pod) handlers() map[string]callins.Handler {
	all := callins.Handlers(p.Supervisor, p.Isolators, p.CommandEnv)
	if p.Handlers != nil {
		maps.Copy(all, p.Handlers(p))
	}
	return all
}

// RootOf returns the path of an app's root, which is mounted from the step "mount roots" on. Files in it are the
// image's, and once the apps run, the apps': a symbolic link may lead out of the root. WriteFile and package rootfs
// resolve paths inside the root.
func (p *Pod) RootOf(app string) string { return rootOf(app) }

// WriteFile writes a file into the app's root, as rootfs.WriteFile does, for a step between "mount roots" and "run
// apps". The file belongs to user 0 of the app. A volume that is mounted above hides the file.
func (p *Pod) WriteFile(app, path string, data []byte, mode fs.FileMode) error {
	err := p.AsOwner(func() error { return rootfs.WriteFile(rootOf(app), path, data, mode) })
	if err != nil {
		return fmt.Errorf("app %q: %w", app, err)
	}
	return nil
}

// rootOf returns the path at which an app's root file system is mounted.
func rootOf(app string) string { return filepath.Join(names.PrivateDir, "roots", app) }

// scratchOf returns the folder of the app's changes to its root file system.
func scratchOf(app string) string { return filepath.Join(names.ScratchDir, app) }
