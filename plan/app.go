package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// defaultPath is the PATH of a process that has none of its own (appc, ace.md,
// Execution Environment).
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// metadataVariable has the URL of the pod's metadata service (appc, ace.md, App Container
// Metadata Service).
const metadataVariable = "AC_METADATA_URL"

// App is the plan of one app.
type App struct {
	Name   string
	Layers []Layer // the topmost first

	// Spec lacks Root, Cgroup, Devices and Files: package boot knows them only when it
	// sets the app up.
	Spec spec.Spec

	// PreStart and PostStop are the arguments of the event handlers, nil for none; see
	// Handler.
	PreStart, PostStop []string

	Sockets  []Socket      // that the main process inherits
	Volumes  []EmptyVolume // folders to make, which Spec.Mounts binds
	Sources  []Source      // of Spec.Mounts; check them before the start
	Notifies bool          // the app reports when it is ready (sd_notify(3))
	Terminal *Size         // the first size of the app's own terminal, nil for none
	Stdin    bool          // the app's stdin stays open

	// StdinOnce says that an open stdin ends with the input of the first caller of attach that has one.
	StdinOnce bool

	// StopSignal is what asks the main process to end when the pod stops.
	StopSignal syscall.Signal

	// Health is how the app's health is checked, nil for not at all. Its command's environment lacks the URL of the
	// metadata service.
	Health *spec.HealthCheck

	Fates    []IsolatorFate
	Warnings []string // for the log
	Notes    []string // for the log: what the app gets without having been given it

	Values map[string]any // of the product's isolators and annotations of the app, see Rows

	networkBandwidth uint64   // of the whole pod, see podIsolators
	variables        []string // its environment without the defaults, for its commands
}

// Layer is one image of an app.
type Layer struct {
	ID     string          // the image ID
	Filter *unionfs.Filter // the files that the path whitelists select, nil for all
}

// LayersIn returns the app's layers for its union file system, the topmost first. A layer's
// folder is dir/ID.
func (a *App) LayersIn(dir string) []unionfs.Layer {
	layers := make([]unionfs.Layer, len(a.Layers))
	for i, layer := range a.Layers {
		layers[i] = unionfs.Layer{Dir: filepath.Join(dir, layer.ID), Filter: layer.Filter}
	}
	return layers
}

// planApp decides how an app of the manifest runs.
func (r Rows) planApp(
	app manifest.App, c Config, m spec.Support, pod podIsolators, volumes []types.Volume,
) (App, error) {
	isolators, err := r.applyAppIsolators(c, m, pod, app.Isolators, targetsOf(app)...)
	if err != nil {
		return App{}, err
	}
	plan, err := planIsolated(app, c, m, isolators, volumes)
	if err != nil {
		return App{}, err
	}
	own := isolators.Own
	if err := r.annotate(app.Runtime.Annotations, false, &own); err != nil {
		return App{}, err
	}
	plan.take(own, pod.Own.Changes)
	return plan, nil
}

// planIsolated decides by the standard tables how an app with these isolators runs.
func planIsolated(
	app manifest.App, c Config, m spec.Support, isolators appIsolators, volumes []types.Volume,
) (App, error) {
	if err := isolators.useProfile(app.Runtime.Annotations, c, m); err != nil {
		return App{}, err
	}
	mounts, err := planMounts(app, c, isolators.Privileged, volumes)
	if err != nil {
		return App{}, err
	}
	plan := App{
		Name:    app.Name,
		Volumes: mounts.Empty,
		Sources: mounts.Sources,
		Fates:   isolators.Fates,
		Notes:   mounts.Notes,

		networkBandwidth: isolators.NetworkBandwidth,
	}
	if plan.Stdin, plan.StdinOnce, plan.Terminal, err = streamsOf(app.Runtime.Annotations); err != nil {
		return App{}, err
	}
	if plan.StopSignal, err = stopSignal(app); err != nil {
		return App{}, err
	}
	hide, ownPIDs, numericIDs, err := processFlags(app.Runtime.Annotations)
	if err != nil {
		return App{}, err
	}
	var warning string
	if plan.Notifies, warning = notifies(app); warning != "" {
		plan.Warnings = append(plan.Warnings, warning)
	}
	env, variables, err := environmentOf(app, c, m.Hostname, plan.Terminal != nil)
	if err != nil {
		return App{}, err
	}
	plan.variables = variables
	if plan.Health, err = healthCheck(app, variables); err != nil {
		return App{}, err
	}
	plan.PreStart, plan.PostStop = eventHandlers(app.App)
	plan.Spec = spec.Spec{
		Name:            app.Name,
		ReadOnlyRoot:    app.Runtime.ReadOnlyRootFS,
		Process:         processOf(app, c, isolators, env),
		Mounts:          mounts.Mounts,
		Resources:       isolators.Resources,
		Privileged:      isolators.Privileged,
		MaskedPaths:     slices.Clone(c.MaskedPaths),
		ReadOnlyPaths:   slices.Clone(c.ReadOnlyPaths),
		HideProcesses:   hide,
		OwnPIDs:         ownPIDs,
		OOMScoreAdj:     isolators.OOMScoreAdj,
		AppArmorProfile: isolators.AppArmorProfile,
		SELinuxLabel:    isolators.SELinuxLabel,
	}
	plan.Spec.Process.NumericIDs = numericIDs
	return plan, nil
}

// processOf is the app's main process.
func processOf(app manifest.App, c Config, isolators appIsolators, env []string) spec.Process {
	return spec.Process{
		Args:                slices.Clone(app.App.Exec),
		Env:                 env,
		Dir:                 app.App.WorkingDirectory,
		MakeDir:             c.MakeWorkingDirectory,
		User:                app.App.User,
		Group:               app.App.Group,
		SupplementaryGID:    slices.Clone(app.App.SupplementaryGIDs),
		Capabilities:        isolators.Capabilities,
		NoNewPrivileges:     isolators.NoNewPrivileges,
		Seccomp:             isolators.Seccomp,
		AmbientCapabilities: isolators.AmbientCapabilities,
	}
}

// targetsOf returns the targets of an app's mounts in the pod manifest.
func targetsOf(app manifest.App) []string {
	var targets []string
	for _, mount := range app.Runtime.Mounts {
		targets = append(targets, mount.Path)
	}
	return targets
}

// Handler returns an event handler's process. It is like the app's main process and has the
// app's capabilities, but it runs as user and group 0, even if the image's passwd file maps
// "0" to another number (appc, aci.md, eventHandlers).
func Handler(main spec.Process, args []string) spec.Process {
	main.Args = slices.Clone(args)
	main.Root, main.User, main.Group, main.SupplementaryGID = true, "", "", nil
	return main
}

// eventHandlers returns the handlers' arguments. A handler without arguments does nothing.
func eventHandlers(app *types.App) (preStart, postStop []string) {
	for _, handler := range app.EventHandlers {
		if len(handler.Exec) == 0 {
			continue
		}
		switch handler.Name {
		case "pre-start":
			preStart = handler.Exec
		case "post-stop":
			postStop = handler.Exec
		}
	}
	return preStart, postStop
}

// Size is a terminal's, in characters.
type Size struct{ Width, Height uint16 }

// streamsOf reads the annotations for an app's stdin and terminal.
func streamsOf(annotations types.Annotations) (stdin, once bool, terminal *Size, err error) {
	switch v, _ := annotations.Get(names.StdinAnnotation); v {
	case "", "null":
	case "stream":
		stdin = true
	case "once":
		stdin, once = true, true
	default:
		return false, false, nil,
			fmt.Errorf(`annotation %s: %q: must be "null", "stream" or "once"`, names.StdinAnnotation, v)
	}
	terminal, err = terminalOf(annotations)
	return stdin, once, terminal, err
}

// terminalOf reads the annotations for an app's terminal. A program may fail with a terminal of no size.
func terminalOf(annotations types.Annotations) (*Size, error) {
	size := Size{80, 24}
	if text, ok := annotations.Get(names.TTYSizeAnnotation); ok {
		_, err := fmt.Sscanf(text, "%dx%d", &size.Width, &size.Height)
		if err != nil || text != fmt.Sprintf("%dx%d", size.Width, size.Height) || size.Width == 0 || size.Height == 0 {
			return nil, fmt.Errorf(`annotation %s: %q: must be a size such as "80x24"`, names.TTYSizeAnnotation, text)
		}
	}
	if has, err := flag(annotations, names.TTYAnnotation); err != nil || !has {
		return nil, err
	}
	return &size, nil
}

// processFlags reads the annotations for the processes that an app sees, and for the meaning of its user and group.
func processFlags(annotations types.Annotations) (hide, ownPIDs, numericIDs bool, err error) {
	for name, value := range map[string]*bool{
		names.HideProcessesAnnotation: &hide, names.OwnPIDsAnnotation: &ownPIDs, names.NumericIDsAnnotation: &numericIDs,
	} {
		if *value, err = flag(annotations, name); err != nil {
			return false, false, false, err
		}
	}
	return hide, ownPIDs, numericIDs, nil
}

// flag reads an annotation that is "true" or "false", the default.
func flag(annotations types.Annotations, name string) (bool, error) {
	switch v, _ := annotations.Get(name); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fmt.Errorf(`annotation %s: %q: must be "true" or "false"`, name, v)
	}
}
