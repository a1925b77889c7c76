package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"kurma.io/stager/activation"
	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/examples/vm/line"
	"kurma.io/stager/manifest"
	"kurma.io/stager/metadata"
	"kurma.io/stager/names"
	"kurma.io/stager/netlimit"
	"kurma.io/stager/plan"
	"kurma.io/stager/rootfs"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/reap"
)

// serveLine answers the stager outside until the pod is over.
func serveLine() error {
	port, err := openLine(portName)
	if err != nil {
		return fmt.Errorf("open serial port: %w", err)
	}
	ctx, release := supervisor.CatchSignals(context.Background())
	defer release()
	reaper, err := reap.New()
	if err != nil {
		return err
	}
	defer reaper.Close()
	over := make(chan struct{})
	var once sync.Once
	var l *line.Line
	l = line.New(port, line.EndB, func(ch *line.Channel, text []byte) {
		var req request
		if err := json.Unmarshal(text, &req); err != nil {
			refuse(ch, fmt.Errorf("decode request: %w", err))
			return
		}
		switch req.Use {
		case usePod:
			once.Do(func() {
				servePod(ctx, ch, req, l, reaper)
				close(over)
			})
		case useCall:
			answerer{reaper}.answer(ch, req)
		default:
			refuse(ch, fmt.Errorf("unknown use %q", req.Use))
		}
	})
	lost := make(chan error, 1)
	go func() { lost <- l.Serve() }()
	select {
	case <-over:
		return nil
	case err := <-lost:
		return fmt.Errorf("the serial port is lost: %w", err)
	}
}

// servePod runs the pod and tells outside how it is getting on.
func servePod(ctx context.Context, ch *line.Channel, req request, l *line.Line, reaper *reap.Reaper) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for text := range ch.Notes() {
			var n note
			if json.Unmarshal(text, &n) == nil && n.Stop {
				stop()
			}
		}
	}()
	// Nobody may stop the pod by not reading its messages.
	messages := supervisor.NewMessages(ch.Writer(1))
	p := &pod{line: l, reaper: reaper, uuid: req.UUID, log: slog.New(slog.NewTextHandler(messages, nil))}
	_ = ch.Note(encode(note{State: stateBooted})) // a line that is lost ends the guest
	code, err := p.run(ctx, func() error { return ch.Note(encode(note{State: stateReady})) })
	r := result{Code: code}
	if err != nil {
		r.Error = oneLine(err)
	}
	_ = messages.Close()
	_ = ch.Close(encode(r))
}

// pod is the pod in the guest, on its way from its manifest to its end. It is what
// the reference stager's boot is, but for the roots, which are there.
type pod struct {
	line   *line.Line
	reaper *reap.Reaper
	uuid   string
	log    *slog.Logger

	undos    []func() error // to be called backwards
	manifest *manifest.Manifest
	plan     *plan.Pod
	runtime  supervisor.Runtime
	apps     []supervisor.App
}

// run takes the pod through its life. ready is called when all apps have been started.
func (p *pod) run(ctx context.Context, ready func() error) (code int, err error) {
	defer func() {
		for _, undo := range slices.Backward(p.undos) {
			err = errors.Join(err, undo())
		}
	}()
	for _, phase := range []func() error{p.decide, p.startMetadata, p.makeView, p.prepare, p.limitNetwork, p.assemble} {
		if ctx.Err() != nil {
			return 0, nil
		}
		if err := phase(); err != nil {
			return 1, err
		}
	}
	return p.supervise(ctx, ready)
}

func (p *pod) undo(f func() error) { p.undos = append(p.undos, f) }

// decide plans the pod for this machine, which is the guest.
func (p *pod) decide() error {
	var err error
	if p.manifest, err = readManifest(names.Manifest); err != nil {
		return err
	}
	p.runtime = container.NewRuntime(names.AppsCgroup, p.log)
	p.undo(p.runtime.Close)
	if p.plan, err = plan.Decide(p.manifest, p.runtime.Support()); err != nil {
		return err
	}
	for _, app := range p.plan.Apps {
		for _, fate := range app.Fates {
			p.log.Info("isolator", "app", app.Name, "name", fate.Name, "fate", fate.Fate, "why", fate.Why)
		}
	}
	return nil
}

func (p *pod) startMetadata() error {
	server, err := metadata.Start(plan.Metadata(p.manifest, p.uuid), p.log)
	if err != nil {
		return err
	}
	p.undo(server.Close)
	p.plan.SetMetadataURL(server.URL())
	return nil
}

func (p *pod) makeView() error {
	if p.plan.Hostname != "" {
		if err := unix.Sethostname([]byte(p.plan.Hostname)); err != nil {
			return fmt.Errorf("set hostname: %w", err)
		}
	}
	for name, value := range p.plan.Sysctl {
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", name, err)
		}
	}
	return os.Mkdir(names.PrivateDir, 0o711)
}

func (p *pod) prepare() error {
	if err := p.runtime.Prepare(names.PrivateDir, p.plan.Resources); err != nil {
		return err
	}
	return p.runtime.MakePod()
}

func (p *pod) limitNetwork() error {
	if p.plan.NetworkBandwidth == 0 {
		return nil
	}
	err := netlimit.Limit(p.plan.NetworkBandwidth)
	if err != nil && p.plan.Config.StrictIsolators {
		return fmt.Errorf("limit network, as stagerConfig.strictIsolators asks for: %w", err)
	}
	if err != nil {
		p.log.Warn("the network's limit is not what it should be", "error", err)
		p.plan.Degrade("resource/network-bandwidth", err.Error())
	}
	return nil
}

func (p *pod) assemble() error {
	for i, app := range p.plan.Apps {
		assembled, err := p.assembleApp(i, app)
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
		p.apps = append(p.apps, assembled)
	}
	return nil
}

func (p *pod) assembleApp(n int, app plan.App) (supervisor.App, error) {
	log, err := openAppLog(p.line, app.Name)
	if err != nil {
		return supervisor.App{}, err
	}
	assembled := supervisor.App{
		Name: app.Name, Terminal: app.Terminal, OpenStdin: app.Stdin,
		Stdout: log.Writer(1), Stderr: log.Writer(2), Ended: func() { endAppLog(log) },
	}
	main := app.Spec
	main.Root, main.Cgroup = rootOf(app.Name), filepath.Join(names.AppsCgroup, app.Name)
	assembled.PreStart = p.handler(main, "pre-start", app.PreStart)
	assembled.PostStop = p.handler(main, "post-stop", app.PostStop)
	sockets, err := activation.OpenSockets(app.Sockets)
	for _, f := range sockets {
		p.undo(f.Close)
	}
	if err != nil {
		return supervisor.App{}, err
	}
	main.Files, main.Process.Env = sockets, activation.ListenEnv(main.Process.Env, app.Sockets)
	if app.Notifies {
		socket, err := activation.OpenNotify(names.NotifyDir, n, main.Cgroup, p.log.With("app", app.Name))
		if err != nil {
			return supervisor.App{}, err
		}
		p.undo(socket.Close)
		main, assembled.Ready = socket.Add(main), socket.Wait
	}
	assembled.Main = p.maker(main)
	return assembled, nil
}

// maker returns a function that makes containers of a spec.
func (p *pod) maker(s spec.Spec) func() (supervisor.Container, error) {
	return func() (supervisor.Container, error) {
		mounts, err := rootfs.ResolveTargets(s.Root, s.Mounts)
		if err != nil {
			return nil, err
		}
		resolved := s
		resolved.Mounts = mounts
		return p.runtime.Container(resolved)
	}
}

// handler returns a function that makes an event handler's containers, nil for no handler.
func (p *pod) handler(main spec.Spec, event string, args []string) func() (supervisor.Container, error) {
	if args == nil {
		return nil
	}
	main.Name += "." + event // app names have no "."
	main.Cgroup += "." + event
	main.Process = plan.Handler(main.Process, args)
	return p.maker(main)
}

// supervise runs the apps, and answers the call-ins that answerer starts.
func (p *pod) supervise(ctx context.Context, ready func() error) (int, error) {
	pod := supervisor.NewPod(supervisor.Config{
		Apps: p.apps, Reaper: p.reaper, Log: p.log,
		Restart: p.plan.Config.Restart, Exit: p.plan.Config.ExitPolicy, Grace: p.plan.Config.GracePeriod,
	})
	listener, err := callins.Listen(names.ControlSocket)
	if err != nil {
		return 1, err
	}
	server := &callins.Server{Log: p.log, Handlers: map[string]callins.Handler{
		callins.RequestStatus:    callins.ServeStatus(pod),
		callins.RequestIsolators: callins.ServeIsolators(func(app string) (any, bool) { return p.plan.Isolators(app) }),
		callins.RequestRun:       callins.ServeRun(pod, p.plan.CommandEnv),
		callins.RequestAttach:    callins.ServeAttach(pod),
	}}
	serving, stopServing := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	code, err := pod.Run(ctx, ready)
	stopServing()
	return code, errors.Join(err, <-served)
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
