package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kurma.io/stager/boot/activation"
	"kurma.io/stager/boot/journal"
	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/crilog"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
)

// assembleApps prepares the apps for the supervisor, and opens their logs.
func assembleApps(_ context.Context, p *Pod) error {
	for i, app := range p.Plan.Apps {
		assembled, err := p.assembleApp(i, app)
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
		p.Apps = append(p.Apps, assembled)
	}
	return nil
}

// assembleApp prepares the pod's nth app.
func (p *Pod) assembleApp(n int, app plan.App) (supervisor.App, error) {
	writer := &reopenedLog{open: func() (appLog, error) {
		return openLog(p.Plan.Config.Log, app.Name, p.Log.With("app", app.Name))
	}}
	if err := writer.Open(); err != nil {
		return supervisor.App{}, err
	}
	ended := func() { p.endApp(app.Name, writer) }
	p.Undo(func() error { ended(); return nil })
	stdio := p.Inherited.Stdio[app.Name]
	assembled := supervisor.App{
		Name: app.Name, OpenStdin: app.Stdin, StdinOnce: app.StdinOnce, StopSignal: app.StopSignal,
		Ended: ended, Again: func() error { return p.startAgain(app.Name, writer) },
		Stdin: stdio[0], OutFile: stdio[1], ErrFile: stdio[2],
		Stdout: p.journal.Tee(app.Name, journal.Info, logStream{writer, crilog.Stdout}),
		Stderr: p.journal.Tee(app.Name, journal.Error, logStream{writer, crilog.Stderr}),
	}
	if app.Terminal != nil {
		assembled.Terminal, assembled.Width, assembled.Height = true, app.Terminal.Width, app.Terminal.Height
	}
	main := app.Spec
	main.Process.Env = plan.WithMetadata(main.Process.Env, p.metadataURL)
	assembled.Health = p.healthCheck(app.Health)
	main.Devices, main.Mounts = p.devices[app.Name], rootfs.OpenDevices(main.Mounts, app.Sources, os.Lstat)
	main.Root, main.Cgroup = rootOf(app.Name), names.AppsCgroup+"/"+app.Name
	main.Backing = []string{scratchOf(app.Name)}
	assembled.PreStart = p.handlerMaker(main, writer, "pre-start", app.PreStart)
	assembled.PostStop = p.handlerMaker(main, writer, "post-stop", app.PostStop)
	main.Files, main.Process.Env = p.sockets[app.Name], activation.ListenEnv(main.Process.Env, app.Sockets)
	if app.Notifies {
		socket, err := activation.OpenNotify(names.NotifyDir, n, main.Cgroup, p.Log.With("app", app.Name))
		if err != nil {
			return supervisor.App{}, err
		}
		p.Undo(socket.Close)
		main = socket.Add(main)
		assembled.Ready = socket.Wait
	}
	assembled.Main = p.maker(app.Name, writer, main)
	return assembled, nil
}

// healthCheck returns an app's health check, whose command has the variables of a command of run; nil for none.
func (p *Pod) healthCheck(planned *spec.HealthCheck) *spec.HealthCheck {
	if planned == nil {
		return nil
	}
	check := *planned
	check.Command.Env = plan.WithMetadata(check.Command.Env, p.metadataURL)
	return &check
}

// appLog is where an app's output goes: a *crilog.Writer or a *crilog.File, which take nothing after Close. Close may
// be called more than once.
type appLog interface {
	Append(crilog.Stream, []byte)
	EndLines()
	Close() error
}

// reopenedLog is the log of an app that may be started again after its log was closed.
type reopenedLog struct {
	open   func() (appLog, error)
	appLog atomic.Pointer[appLog] // the latest
}

// Open opens the log. After an error it is as it was.
func (l *reopenedLog) Open() error {
	opened, err := l.open()
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	l.appLog.Store(&opened)
	return nil
}

// reopen is Open for a limited time. A log that opens later is closed again.
func (l *reopenedLog) reopen() error {
	var mu sync.Mutex // guards late and done
	late, done := false, false
	err := soon(func() error {
		opened, err := l.open()
		if err != nil {
			return fmt.Errorf("open log: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if late {
			return opened.Close()
		}
		l.appLog.Store(&opened)
		done = true
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	late = true
	if done { // at the last moment, if there is an error
		return nil
	}
	return err
}

// Append implements appLog.
func (l *reopenedLog) Append(stream crilog.Stream, chunk []byte) {
	(*l.appLog.Load()).Append(stream, chunk)
}

// EndLines implements appLog.
func (l *reopenedLog) EndLines() { (*l.appLog.Load()).EndLines() }

// Close implements appLog.
func (l *reopenedLog) Close() error { return (*l.appLog.Load()).Close() }

// startAgain opens what endApp has closed, for an app that is started again after it has ended for good.
func (p *Pod) startAgain(app string, log *reopenedLog) error {
	stdio := p.Inherited.Stdio[app]
	if stdio != [3]*os.File{} || len(p.sockets[app]) > 0 {
		return errors.New("its sockets, or the files of its output, were closed when it ended")
	}
	return log.reopen()
}

func openLog(c plan.LogConfig, app string, logger *slog.Logger) (appLog, error) {
	if c.Path != "" {
		return crilog.OpenFile(c.Path, logger)
	}
	options := crilog.Options{MaxSize: c.MaxSize, MaxFiles: c.MaxFiles, Logger: logger}
	return crilog.Open(filepath.Join(names.LogDir, app), options)
}

// endApp closes what is open for an app that will not run again: its sockets, so that clients are refused; the
// daemon's files, so that the daemon reads the end of a pipe; the log, so that clients that follow the log end. What
// they have not taken of the app's last output by then is lost.
func (p *Pod) endApp(app string, log appLog) {
	p.journal.EndLines(app)
	stdio := p.Inherited.Stdio[app]
	err := soon(func() error {
		for _, f := range slices.Concat(p.sockets[app], stdio[:]) {
			_ = f.Close() // nil is none
		}
		log.EndLines()
		return log.Close()
	})
	if err != nil {
		p.Log.Error("end log", "app", app, "error", err)
	}
}

// fileLimit bounds the wait for a disk, or for a server of files, when the pod is up and at its end.
const fileLimit = 5 * time.Second

// soon returns f's error. After fileLimit it leaves f behind: a file system that does not answer may not keep the pod
// from its work or its end.
func soon(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(fileLimit):
		return fmt.Errorf("file system does not answer within %s", fileLimit)
	}
}

// maker returns a function that makes containers from an app's spec, and ends the lines of the log that an earlier
// container has begun. Call that function only when the root is mounted.
func (p *Pod) maker(app string, log appLog, s spec.Spec) func() (spec.Container, error) {
	return func() (spec.Container, error) {
		p.journal.EndLines(app)
		log.EndLines()
		mounts, err := rootfs.ResolveTargets(s.Root, s.Mounts)
		if err != nil {
			return nil, err
		}
		resolved := s
		resolved.Mounts = mounts
		return p.Runtime.Container(resolved)
	}
}

// handlerMaker returns a function that makes an event handler's containers. They are like the
// app's, but have their own name and cgroup. The function is nil if the app has no such handler.
func (p *Pod) handlerMaker(main spec.Spec, log appLog, event string, args []string) func() (spec.Container, error) {
	if args == nil {
		return nil
	}
	app := main.Name
	// An app's name has no ".", so no app has this name.
	main.Name += "." + event
	main.Cgroup += "." + event
	main.Process = plan.Handler(main.Process, args)
	return p.maker(app, log, main)
}

// logStream is one stream of an app's log as an io.Writer.
type logStream struct {
	log    appLog
	stream crilog.Stream
}

// Write implements io.Writer. It never returns an error, which would stop the app's output.
func (l logStream) Write(chunk []byte) (int, error) {
	l.log.Append(l.stream, chunk)
	return len(chunk), nil
}
