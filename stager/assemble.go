package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"kurma.io/stager/container"
	"kurma.io/stager/crilog"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
)

// mountRoots makes every app's root file system, side by side.
func (b *boot) mountRoots(ctx context.Context) error {
	scratch, err := prepareScratch()
	if err != nil {
		return err
	}
	driver, err := b.selectDriver(scratch)
	if err != nil {
		return err
	}
	resolver, err := os.ReadFile(resolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read resolver configuration: %w", err)
	}
	hostname := ""
	if !b.pod.Namespaces.hostUTS {
		hostname = hostnameOf(b.manifest.Name)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelMounts)
	for _, plan := range b.plans {
		group.Go(func() error {
			log, root := b.log.With("app", plan.Name), rootOf(plan.Name)
			if err := b.mountRoot(ctx, driver, plan, scratch, root); err != nil {
				return fmt.Errorf("mount root of app %q: %w", plan.Name, err)
			}
			if err := etcFiles(root, resolver, hostname); err != nil {
				log.Warn("the app does without files in /etc", "error", err)
			}
			if err := prepareTargets(root, plan.Spec.Mounts, log); err != nil {
				return fmt.Errorf("app %q: %w", plan.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// rootOf is where an app's root file system is mounted.
func rootOf(app string) string { return filepath.Join(privateDir, "roots", app) }

// parallelMounts bounds the roots that are made at once: copying is bound by
// the disk, mounting by nothing.
const parallelMounts = 4

func (b *boot) selectDriver(scratch string) (unionfs.Driver, error) {
	var layers []string
	for _, plan := range b.plans {
		for _, id := range plan.Layers {
			layers = append(layers, filepath.Join(layersDir, id))
		}
	}
	choice, err := unionfs.Select(b.config.GraphStorage, scratch, layers)
	if err != nil {
		return nil, err
	}
	for _, reason := range choice.Rejected {
		b.log.Warn("file system not used", "reason", reason)
	}
	for _, note := range choice.Notes {
		b.log.Warn("root file systems lack something", "driver", choice.Driver.Name(), "note", note)
	}
	b.log.Info("root file systems", "driver", choice.Driver.Name())
	return choice.Driver, nil
}

func (b *boot) mountRoot(ctx context.Context, driver unionfs.Driver, plan appPlan, scratch, target string) error {
	upper := filepath.Join(scratch, plan.Name)
	for _, dir := range []string{upper, target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	layers, err := b.layersOf(plan)
	if err != nil {
		return err
	}
	return driver.Mount(ctx, unionfs.Root{App: plan.Name, Layers: layers, Scratch: upper, Target: target})
}

// layersOf names the app's layers, with what their images' path whitelists
// leave of them.
func (b *boot) layersOf(plan appPlan) ([]unionfs.Layer, error) {
	filters, err := b.filtersOf(plan)
	if err != nil {
		return nil, err
	}
	layers := make([]unionfs.Layer, len(plan.Layers))
	for i, id := range plan.Layers {
		layers[i] = unionfs.Layer{Dir: filepath.Join(layersDir, id), Filter: filters[i]}
	}
	return layers, nil
}

// filtersOf takes the tree of dependencies from the images' own manifests.
func (b *boot) filtersOf(plan appPlan) ([]*unionfs.Filter, error) {
	list := make([]layerImage, len(plan.Layers))
	for i, id := range plan.Layers {
		list[i] = layerImage{id: id, image: b.manifest.Images[id]}
	}
	images := make([]unionfs.Image, len(list))
	whitelisted := false
	for i, above := range dependents(list) {
		images[i].Dependents = above
		if whitelisted && len(above) == 0 {
			b.log.Warn("no image above has this one as a dependency, so none of their path whitelists holds for its files",
				"app", plan.Name, "image", list[i].id)
		}
		if list[i].image != nil {
			images[i].Whitelist = list[i].image.PathWhitelist
			whitelisted = whitelisted || len(images[i].Whitelist) > 0
		}
	}
	return unionfs.Filters(images)
}

// assembleApp says how the containers of the pod's nth app are made.
func (b *boot) assembleApp(n int, filters filterCache) (supervisor.App, error) {
	plan := b.plans[n]
	filter, err := filters.of(plan)
	if err != nil {
		return supervisor.App{}, err
	}
	writer, err := crilog.Open(filepath.Join(logDir, plan.Name), crilog.Options{
		MaxSize: b.config.Log.MaxSize, MaxFiles: b.config.Log.MaxFiles, Logger: b.log.With("app", plan.Name),
	})
	if err != nil {
		return supervisor.App{}, fmt.Errorf("open log: %w", err)
	}
	b.logs = append(b.logs, writer)
	stdio := b.inherited.stdio[plan.Name]
	app := supervisor.App{
		Name: plan.Name, Terminal: plan.Terminal, OpenStdin: plan.Stdin,
		Ended: func() { b.endLog(plan.Name, writer) },
		Stdin: stdio[0], OutFile: stdio[1], ErrFile: stdio[2],
		Stdout: b.journal.also(plan.Name, priorityInfo, logStream{writer, crilog.Stdout}),
		Stderr: b.journal.also(plan.Name, priorityError, logStream{writer, crilog.Stderr}),
	}
	spec := plan.Spec
	spec.Root, spec.Cgroup, spec.Process.Seccomp = rootOf(plan.Name), appsCgroup+"/"+plan.Name, filter
	app.PreStart = b.handlerMaker(spec, "pre-start", plan.PreStart)
	app.PostStop = b.handlerMaker(spec, "post-stop", plan.PostStop)
	spec.Files, spec.Process.Env = b.sockets[n], listenEnv(spec.Process.Env, plan.Sockets)
	if plan.Notifies {
		socket, err := openNotify(notifyDir, n, spec.Cgroup, b.log.With("app", plan.Name))
		if err != nil {
			return supervisor.App{}, err
		}
		b.notify = append(b.notify, socket)
		spec = socket.add(spec)
		app.Ready = socket.wait
	}
	app.Main = b.maker(spec)
	return app, nil
}

// endLog ends the log of an app that has ended for good, for those who follow it.
func (b *boot) endLog(app string, log *crilog.Writer) {
	b.journal.endLines(app)
	if err := log.Close(); err != nil {
		b.log.Error("end log", "app", app, "error", err)
	}
}

// maker makes the containers of a spec whose root is there by the time that the
// first is made.
func (b *boot) maker(spec container.Spec) func() (supervisor.Container, error) {
	app, _, _ := strings.Cut(spec.Name, ".") // a handler's has more, see handlerMaker
	return func() (supervisor.Container, error) {
		b.journal.endLines(app)
		mounts, err := resolveTargets(spec.Root, spec.Mounts)
		if err != nil {
			return nil, err
		}
		resolved := spec
		resolved.Mounts = mounts
		return b.runtime.Container(resolved), nil
	}
}

// handlerMaker makes an event handler's containers: as the app's, but with a
// name and a cgroup of its own; nil where the app has no such handler.
func (b *boot) handlerMaker(spec container.Spec, event string, args []string) func() (supervisor.Container, error) {
	if args == nil {
		return nil
	}
	// App names have no ".", so no app is called that.
	spec.Name += "." + event
	spec.Cgroup += "." + event
	spec.Process = handlerOf(spec.Process, args)
	return b.maker(spec)
}

// filterCache keeps compiled filters by what they were made of.
type filterCache map[string]*container.Filter

func (c filterCache) of(plan appPlan) (*container.Filter, error) {
	capabilities := plan.Spec.Process.Capabilities
	key := fmt.Sprint(plan.Seccomp, strings.Join(capabilities, " "))
	if f, ok := c[key]; ok {
		return f, nil
	}
	var f *container.Filter
	var err error
	switch plan.Seccomp.Kind {
	case seccompDefault:
		f, err = container.DefaultFilter(capabilities)
	case seccompSet:
		f, err = plan.Seccomp.Set.Compile()
	case seccompOff:
	}
	c[key] = f
	return f, err
}

// logStream is one stream of an app's log as an io.Writer.
type logStream struct {
	log    *crilog.Writer
	stream crilog.Stream
}

// Write implements io.Writer. It has no error: nothing stops the app.
func (l logStream) Write(chunk []byte) (int, error) {
	l.log.Append(l.stream, chunk)
	return len(chunk), nil
}

// appLogs are the logs of all apps.
type appLogs []*crilog.Writer

func (l appLogs) close() error {
	var errs []error
	for _, w := range l {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}
