// Command mini is a stager in one file, of the reference stager's packages: it plans the pod, mounts the roots, runs
// the apps under a PID 1 of their own, keeps their logs and answers status, logs, run and attach. It lacks the metadata
// service, the journal, sd_notify, limits of network and shared memory, the apps' last states after the pod's end, and
// isolators' fates in its log.
//
// In the project's folder, after `make build`, these commands make the stager, and its image with a throwaway key:
//
//	go build -C examples/mini -tags 'seccomp netgo osusergo' -ldflags "-linkmode external -extldflags '-static'" -o /tmp/mini .
//	bin/aci --manifest aci-manifest.json --stager /tmp/mini -o mini.aci
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/boot/activation"
	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/crilog"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/reap"
	"kurma.io/stager/unionfs"
	"kurma.io/stager/waiter/pid1"
)

func main() {
	container.Init() // this program is also a container's first process
	code, err := dispatch(context.Background())
	os.Exit(max(code, callins.ExitCode(err, os.Stderr)))
}

// dispatch finds the program's part: a call-in by its name, the supervisor by its line to the
// first process, or that first process.
func dispatch(ctx context.Context) (int, error) {
	if callIn, ok := callins.CallIns()[filepath.Base(os.Args[0])]; ok {
		return 0, callIn(ctx, callins.ProcessStreams(), os.Args[1:])
	}
	line, err := pid1.TakeLine()
	if err != nil {
		return 1, err
	}
	runtime := container.NewRuntime(names.AppsCgroup, slog.Default())
	pod, err := decide(runtime.Support())
	if err != nil {
		return 1, fmt.Errorf("%s: %w", names.Program, err)
	}
	if line == nil {
		return pid1.Wait(pod.Namespaces.CloneFlags())
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	release := supervisor.IgnoreSignals()
	defer release()
	go line.Watch(stop, func() { _ = runtime.KillPod() })
	code, err := (&mini{plan: pod, runtime: runtime, line: line}).run(ctx)
	if err != nil {
		return max(code, 1), fmt.Errorf("%s: %w", names.Program, err)
	}
	return code, nil
}

// decide reads the manifest and plans the pod.
func decide(support spec.Support) (*plan.Pod, error) {
	f, err := os.Open(names.Manifest)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := manifest.Read(f)
	if err != nil {
		return nil, err
	}
	return plan.Decide(m, support, unionfs.NamesOf(unionfs.Drivers()))
}

// mini is one pod.
type mini struct {
	plan    *plan.Pod
	runtime spec.Runtime
	line    *pid1.Line
	apps    []supervisor.App
}

// run takes the pod through its life and leaves nothing behind but its logs.
func (m *mini) run(ctx context.Context) (code int, err error) {
	inherited := boot.TakeDescriptors(os.Environ()) // before anything else opens some
	for _, app := range m.plan.Apps {
		for _, warning := range app.Warnings {
			slog.Warn(warning, "app", app.Name)
		}
	}
	if err := m.makeView(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, m.runtime.Close()) }()
	if err := m.runtime.Prepare(names.PrivateDir, m.plan.Resources); err != nil {
		return 1, err
	}
	if err := errors.Join(m.runtime.MakePod(), m.mountRoots(ctx)); err != nil {
		return 1, err
	}
	for _, app := range m.plan.Apps {
		if err := m.assemble(app); err != nil {
			return 1, fmt.Errorf("app %q: %w", app.Name, err)
		}
	}
	reaper, err := reap.New()
	if err != nil {
		return 1, err
	}
	defer reaper.Close()
	pod := supervisor.NewPod(supervisor.Config{
		Apps: m.apps, Reaper: reaper, Log: slog.Default(),
		Restart: m.plan.Config.Restart, Exit: m.plan.Config.ExitPolicy, Grace: m.plan.Config.GracePeriod,
	})
	stop, err := m.listen(pod)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return pod.Run(ctx, func() error {
		if inherited.Ready == nil {
			return nil
		}
		return errors.Join(inherited.Ready.Close(), m.line.Up())
	})
}

// makeView makes the supervisor's own mounts, which vanish with it, and the pod's hostname.
func (m *mini) makeView() error {
	if !m.plan.Namespaces.HostPID {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	if m.plan.Hostname != "" {
		if err := unix.Sethostname([]byte(m.plan.Hostname)); err != nil {
			return fmt.Errorf("set hostname: %w", err)
		}
	}
	for _, dir := range []string{names.PrivateDir, names.ScratchDir, names.LogDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	for _, dir := range []string{names.PrivateDir, names.ScratchDir} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=711"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	for name, value := range m.plan.Sysctl {
		if err := os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", name, err)
		}
	}
	return rootfs.ClearEmptyVolumes(names.EmptyVolumesDir)
}

// mountRoots makes the apps' root file systems and volumes, one after the other.
func (m *mini) mountRoots(ctx context.Context) error {
	var all []string
	for _, app := range m.plan.Apps {
		for _, layer := range app.LayersIn(names.LayersDir) {
			all = append(all, layer.Dir)
		}
	}
	choice, err := unionfs.Select(unionfs.Drivers(), m.plan.Config.GraphStorage, names.ScratchDir, all)
	if err != nil {
		return err
	}
	resolver, _ := os.ReadFile(names.ResolvConf) // without it the apps have the image's
	for i := range m.plan.Apps {
		app := &m.plan.Apps[i]
		root := unionfs.Root{
			App: app.Name, Layers: app.LayersIn(names.LayersDir),
			Scratch: filepath.Join(names.ScratchDir, app.Name), Target: rootOf(app.Name),
		}
		err := errors.Join(os.MkdirAll(root.Scratch, 0o755), os.MkdirAll(root.Target, 0o755))
		if err == nil {
			err = choice.Driver.Mount(ctx, root)
		}
		if err == nil {
			err = rootfs.MakeEmptyVolumes(app.Volumes)
		}
		if err == nil {
			app.Spec.Devices, err = rootfs.CheckSources(app.Sources, os.Lstat)
		}
		if err == nil {
			err = rootfs.PrepareTargets(root.Target, app.Spec.Mounts, slog.Default())
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
		if err := rootfs.AddEtcFiles(root.Target, resolver, m.plan.Hostname); err != nil {
			slog.Warn("the app lacks files in /etc", "app", app.Name, "error", err)
		}
	}
	return nil
}

func rootOf(app string) string { return filepath.Join(names.PrivateDir, "roots", app) }

// assemble decides how an app's containers are made, and opens its log.
func (m *mini) assemble(app plan.App) error {
	log, err := crilog.Open(filepath.Join(names.LogDir, app.Name), crilog.Options{
		MaxSize: m.plan.Config.Log.MaxSize, MaxFiles: m.plan.Config.Log.MaxFiles,
	})
	if err != nil {
		return err
	}
	sockets, err := activation.OpenSockets(app.Sockets) // they close with this process
	if err != nil {
		return err
	}
	main := app.Spec
	main.Root, main.Cgroup = rootOf(app.Name), names.AppsCgroup+"/"+app.Name
	main.Backing = []string{filepath.Join(names.ScratchDir, app.Name)}
	handler := func(event string, args []string) func() (spec.Container, error) {
		if args == nil {
			return nil
		}
		s := main
		s.Name, s.Cgroup, s.Process = s.Name+"."+event, s.Cgroup+"."+event, plan.Handler(s.Process, args)
		return m.maker(s)
	}
	assembled := supervisor.App{
		Name: app.Name, Terminal: app.Terminal, OpenStdin: app.Stdin,
		PreStart: handler("pre-start", app.PreStart), PostStop: handler("post-stop", app.PostStop),
		Stdout: stream{log, crilog.Stdout}, Stderr: stream{log, crilog.Stderr},
		Ended: func() { _ = log.Close() },
	}
	main.Files, main.Process.Env = sockets, activation.ListenEnv(main.Process.Env, app.Sockets)
	assembled.Main = m.maker(main)
	m.apps = append(m.apps, assembled)
	return nil
}

// maker returns a function that makes a container for each run of an app.
func (m *mini) maker(s spec.Spec) func() (spec.Container, error) {
	return func() (spec.Container, error) {
		run := s
		var err error
		if run.Mounts, err = rootfs.ResolveTargets(s.Root, s.Mounts); err != nil {
			return nil, err
		}
		return m.runtime.Container(run)
	}
}

// stream is one stream of an app's log.
type stream struct {
	log  *crilog.Writer
	kind crilog.Stream
}

// Write implements io.Writer. It returns no error: nothing stops the app.
func (s stream) Write(chunk []byte) (int, error) {
	s.log.Append(s.kind, chunk)
	return len(chunk), nil
}

// listen answers call-ins until stop is called.
func (m *mini) listen(pod *supervisor.Pod) (stop func() error, err error) {
	listener, err := callins.Listen(names.ControlSocket)
	if err != nil {
		return nil, err
	}
	server := &callins.Server{Log: slog.Default(), Handlers: callins.Handlers(pod, m.plan.Isolators, m.plan.CommandEnv)}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	return func() error { cancel(); return <-served }, nil
}
