package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/manifest"
	"kurma.io/stager/metadata"
	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/reap"
)

// boot is a pod on its way from its manifest to its running apps. A field is
// filled by the phase that is named with it and only read afterwards.
type boot struct {
	log       *slog.Logger
	inherited inherited
	waiter    waiter

	manifest *manifest.Manifest // decide
	config   config             // decide
	pod      podIsolators       // decide
	metadata *metadata.Server   // decide; nil for none
	plans    []appPlan          // decide, in the pod's order

	cgroup  *container.PodCgroup // prepare
	runtime *container.Runtime   // prepare
	sockets [][]*os.File         // prepare, by app
	apps    []supervisor.App     // assemble
	logs    appLogs              // assemble
	notify  []*notifySocket      // assemble
	journal appJournal           // prepare
}

// phases are the way of a pod, in order. Whoever forks the stager begins here.
func (b *boot) phases() []func(context.Context) error {
	return []func(context.Context) error{b.decide, b.isolate, b.prepare, b.assemble}
}

// run takes the pod through its life and leaves nothing behind.
func (b *boot) run(ctx context.Context) (code int, err error) {
	if err := claimRoot(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, b.cleanUp()) }()
	for _, phase := range b.phases() {
		if ctx.Err() != nil {
			return 0, nil
		}
		if err := phase(ctx); err != nil {
			if ctx.Err() != nil {
				return 0, nil
			}
			return 1, err
		}
	}
	return b.serve(ctx)
}

// decide reads the manifest and settles all that can be settled without
// touching anything but a port, for the metadata service has its URL.
func (b *boot) decide(context.Context) error {
	var err error
	if b.manifest, err = readManifest(manifestPath); err != nil {
		return err
	}
	var unknown []string
	if b.config, unknown, err = parseConfig(b.manifest.StagerConfig); err != nil {
		return err
	}
	here := thisMachine()
	var targets []string
	for _, app := range b.manifest.Apps() {
		targets = append(targets, targetsOf(app)...)
	}
	if b.pod, err = isolatePod(b.config, here, b.manifest.Pod.Isolators, targets...); err != nil {
		return fmt.Errorf("pod: %w", err)
	}
	if err := b.waiter.settle(b.pod.Namespaces.cloneFlags(), b.inherited.ready); err != nil {
		return err
	}
	for _, key := range unknown {
		b.log.Warn("nobody reads this key", "key", "stagerConfig."+key)
	}
	if slices.Contains(b.config.RequiredNamespaces, "user") {
		b.log.Warn("a pod's user namespace is the stager's: stagerConfig.requiredNamespaces cannot have it another")
	}
	b.pod.OneApp = len(b.manifest.Pod.Apps) == 1
	b.logFates("", b.pod.Fates)
	cgroups, _ := os.ReadFile("/proc/self/cgroup") // without it the pod has a UUID of its own
	if err := b.startMetadata(podUUID(string(cgroups))); err != nil {
		return err
	}
	if err := checkVolumeNames(b.manifest.Pod); err != nil {
		return err
	}
	warnings, err := checkPortNames(b.manifest.Apps(), b.manifest.Pod.Ports)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		b.log.Warn(warning)
	}
	for _, app := range b.manifest.Apps() {
		plan, err := planApp(app, b.config, here, b.pod, b.manifest.Pod.Volumes, b.metadataURL())
		if err != nil {
			return err
		}
		if plan.Sockets, err = socketsOf(app, b.manifest.Pod.Ports); err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
		b.plans = append(b.plans, plan)
		b.logFates(app.Name, plan.Fates)
		for _, warning := range plan.Warnings {
			b.log.Warn(warning, "app", app.Name)
		}
	}
	return nil
}

func (b *boot) logFates(app string, fates []isolatorFate) {
	for _, f := range fates {
		level := slog.LevelInfo
		if f.Fate != enforced {
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

// isolate makes the supervisor's mounts, and the pod's hostname and kernel
// settings.
func (b *boot) isolate(context.Context) error {
	if err := isolate(b.pod.Namespaces, hostnameOf(b.manifest.Name)); err != nil {
		return err
	}
	return writeSysctls(b.pod.Sysctl)
}

// prepare makes what the apps share: the container runtime, empty volumes, sockets. What
// a stager before this one has left of the pod's cgroup is killed first.
func (b *boot) prepare(context.Context) error {
	var err error
	if b.runtime, err = container.NewRuntime(privateDir, b.log); err != nil {
		return err
	}
	if b.cgroup, err = container.NewPodCgroup(appsCgroup, b.pod.Resources); err != nil {
		return err
	}
	if b.config.Log.Driver == logToJournal {
		b.journal.open(journalSocket, b.log)
	}
	if err := b.limitNetwork(); err != nil {
		return err
	}
	if err := clearEmptyVolumes(); err != nil {
		return err
	}
	for i := range b.plans {
		plan := &b.plans[i]
		if plan.Spec.Devices, err = checkSources(plan.Sources, os.Lstat); err != nil {
			return fmt.Errorf("app %q: %w", plan.Name, err)
		}
		files, err := openSockets(plan.Sockets)
		b.sockets = append(b.sockets, files)
		if err != nil {
			return fmt.Errorf("app %q: %w", plan.Name, err)
		}
		if err := makeEmptyVolumes(plan.Volumes); err != nil {
			return fmt.Errorf("app %q: %w", plan.Name, err)
		}
	}
	return nil
}

// assemble says how the apps' containers are made.
func (b *boot) assemble(context.Context) error {
	filters := filterCache{}
	for i := range b.plans {
		app, err := b.assembleApp(i, filters)
		if err != nil {
			return fmt.Errorf("app %q: %w", b.plans[i].Name, err)
		}
		b.apps = append(b.apps, app)
	}
	return nil
}

// serve answers call-ins, while the apps are started and run, until the pod is
// over.
func (b *boot) serve(ctx context.Context) (int, error) {
	reaper, err := reap.New()
	if err != nil {
		return 1, err
	}
	defer reaper.Close()
	pod := supervisor.NewPod(supervisor.Config{
		Apps: b.apps, Reaper: reaper, Log: b.log,
		Restart: b.config.Restart, Exit: b.config.ExitPolicy, Grace: b.config.GracePeriod,
	})
	listener, err := callins.Listen(names.ControlSocket)
	if err != nil {
		return 1, err
	}
	server := &callins.Server{Handlers: b.handlers(pod), Log: b.log}
	serving, stopServing := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	code, err := b.start(ctx, pod)
	stopServing()
	return code, errors.Join(err, <-served)
}

// start makes the pod's cgroup while it mounts the roots, which take about as
// long, and runs the apps.
func (b *boot) start(ctx context.Context, pod *supervisor.Pod) (int, error) {
	made := make(chan error, 1)
	go func() { made <- b.cgroup.Make() }()
	if err := errors.Join(b.mountRoots(ctx), <-made); err != nil {
		if ctx.Err() != nil {
			return 0, nil
		}
		return 1, err
	}
	b.beLikeNoApp()
	return pod.Run(ctx, b.ready)
}

// ready tells the daemon that the pod is up: it sees end of file when the
// waiter has closed its copy as well.
func (b *boot) ready() error {
	b.log.Info("pod is running", "apps", len(b.apps))
	defer func() { go releaseStartMemory() }()
	if b.inherited.ready == nil {
		return nil
	}
	return errors.Join(b.inherited.ready.Close(), b.waiter.up())
}

// callInEnv is what a command of run has in its environment by default.
func (b *boot) callInEnv(app string) []string {
	env := []string{"PATH=" + defaultPath, "AC_APP_NAME=" + app, "container=" + executorName}
	if url := b.metadataURL(); url != "" {
		env = append(env, "AC_METADATA_URL="+url)
	}
	return env
}

// isolatorsOf is what became of an app's isolators and the pod's.
func (b *boot) isolatorsOf(app string) (any, bool) {
	for _, plan := range b.plans {
		if plan.Name == app {
			return map[string][]isolatorFate{"pod": nonNil(b.pod.Fates), "app": nonNil(plan.Fates)}, true
		}
	}
	return nil, false
}

func nonNil(fates []isolatorFate) []isolatorFate {
	if fates == nil {
		return []isolatorFate{}
	}
	return fates
}
