package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/container"
	"kurma.io/stager/manifest"
)

// Values of the environment that every process of an app has (appc, ace.md,
// Execution Environment).
const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// appPlan is all that is decided of one app before anything is done for it.
type appPlan struct {
	Name   string
	Layers []string // image IDs, the topmost first

	// Spec lacks what is only known when the app is set up: Root, Cgroup and
	// Process.Seccomp, which Seccomp tells how to make.
	Spec    container.Spec
	Seccomp seccompPlan

	// PreStart and PostStop are the event handlers' arguments, nil for none.
	// See handlerOf.
	PreStart, PostStop []string

	Sockets  []socket      // that the main process finds open
	Volumes  []emptyVolume // folders to make, which Spec.Mounts binds
	Sources  []source      // of Spec.Mounts, to be checked
	Notifies bool          // the app says itself when it is ready
	Terminal bool          // the app gets a terminal of its own
	Stdin    bool          // the app's stdin stays open
	Fates    []isolatorFate
	Warnings []string // for the log

	NetworkBandwidth uint64 // see podIsolators
}

// planApp decides how an app of the manifest runs. metadataURL may be "". An error
// names the app.
func planApp(app manifest.App, c config, m machine, pod podIsolators, volumes []types.Volume, metadataURL string) (appPlan, error) {
	isolators, err := isolateApp(c, m, pod, app.Isolators, targetsOf(app)...)
	if err != nil {
		return appPlan{}, fmt.Errorf("app %q: %w", app.Name, err)
	}
	mounts, err := planMounts(app, volumes)
	if err != nil {
		return appPlan{}, fmt.Errorf("app %q: %w", app.Name, err)
	}
	plan := appPlan{
		Name:     app.Name,
		Layers:   app.Layers,
		Seccomp:  isolators.Seccomp,
		Volumes:  mounts.Empty,
		Sources:  mounts.Sources,
		Fates:    isolators.Fates,
		Warnings: mounts.Warnings,

		NetworkBandwidth: isolators.NetworkBandwidth,
	}
	if plan.Stdin, plan.Terminal, err = streamsOf(app.Runtime.Annotations); err != nil {
		return appPlan{}, fmt.Errorf("app %q: %w", app.Name, err)
	}
	var warning string
	if plan.Notifies, warning = notifies(app); warning != "" {
		plan.Warnings = append(plan.Warnings, warning)
	}
	plan.PreStart, plan.PostStop = eventHandlers(app.App)
	plan.Spec = container.Spec{
		Name:         app.Name,
		ReadOnlyRoot: app.Runtime.ReadOnlyRootFS,
		Process: container.Process{
			Args:             slices.Clone(app.App.Exec),
			Env:              environment(app, metadataURL, plan.Terminal),
			Dir:              app.App.WorkingDirectory,
			User:             app.App.User,
			Group:            app.App.Group,
			SupplementaryGID: slices.Clone(app.App.SupplementaryGIDs),
			Capabilities:     isolators.Capabilities,
			NoNewPrivileges:  isolators.NoNewPrivileges,
		},
		Mounts:          mounts.Mounts,
		Resources:       isolators.Resources,
		Privileged:      isolators.Privileged,
		OOMScoreAdj:     isolators.OOMScoreAdj,
		AppArmorProfile: isolators.AppArmorProfile,
		SELinuxLabel:    isolators.SELinuxLabel,
	}
	return plan, nil
}

// targetsOf are where the pod manifest has mounts for an app.
func targetsOf(app manifest.App) []string {
	var targets []string
	for _, mount := range app.Runtime.Mounts {
		targets = append(targets, mount.Path)
	}
	return targets
}

// handlerOf is an event handler's process: as the app's, but as user and group
// 0, whoever the image's passwd file says "0" is, within the app's capabilities.
func handlerOf(main container.Process, args []string) container.Process {
	main.Args = slices.Clone(args)
	main.Root, main.User, main.Group, main.SupplementaryGID = true, "", "", nil
	return main
}

// eventHandlers finds the handlers' arguments. One without any does nothing.
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

// environment is an app's, NAME=value, each name once. The app's own PATH goes
// before the default one; what tells the app where it is goes before the app's own.
func environment(app manifest.App, metadataURL string, terminal bool) []string {
	fixed := []types.EnvironmentVariable{{Name: "AC_APP_NAME", Value: app.Name}, {Name: "container", Value: executorName}}
	if metadataURL != "" {
		fixed = append(fixed, types.EnvironmentVariable{Name: "AC_METADATA_URL", Value: metadataURL})
	}
	defaults := []types.EnvironmentVariable{{Name: "PATH", Value: defaultPath}}
	if terminal {
		defaults = append(defaults, types.EnvironmentVariable{Name: "TERM", Value: "xterm"})
	}
	var env []string
	seen := map[string]bool{}
	for _, v := range slices.Concat(fixed, []types.EnvironmentVariable(app.App.Environment), defaults) {
		if !seen[v.Name] {
			env = append(env, v.Name+"="+v.Value)
		}
		seen[v.Name] = true
	}
	return env
}

// streamsOf reads the annotations that say what an app's streams are.
func streamsOf(annotations types.Annotations) (stdin, terminal bool, err error) {
	switch v, _ := annotations.Get(stdinAnnotation); v {
	case "", "null":
	case "stream":
		stdin = true
	default:
		return false, false, fmt.Errorf(`annotation %s: %q: must be "null" or "stream"`, stdinAnnotation, v)
	}
	switch v, _ := annotations.Get(ttyAnnotation); v {
	case "", "false":
	case "true":
		terminal = true
	default:
		return false, false, fmt.Errorf(`annotation %s: %q: must be "true" or "false"`, ttyAnnotation, v)
	}
	return stdin, terminal, nil
}

// hostnameOf makes a hostname of the pod's name: 64 bytes at most, by
// sethostname(2), and without what no resolver or file would take. It may be "".
func hostnameOf(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	return strings.Trim(clean[:min(len(clean), 64)], "-.")
}
