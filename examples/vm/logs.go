package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"kurma.io/stager/crilog"
	"kurma.io/stager/examples/vm/line"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
)

// openAppLog opens an app's log in the guest: streams 1 and 2 of the channel.
func openAppLog(l *line.Line, app string) (*line.Channel, error) {
	ch, err := l.Open(encode(request{Use: useLog, App: app}))
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return ch, nil
}

// endAppLog ends an app's log, and returns when all of it is on disk outside.
func endAppLog(ch *line.Channel) {
	for _, stream := range []int{1, 2} {
		_ = ch.Writer(stream).Close() // a line that is lost ends the guest
	}
	<-ch.Done()
}

// appLogs are the apps' logs outside, where the call-in logs reads them, also when the guest
// is gone.
type appLogs struct {
	dir     string
	options plan.LogConfig
	log     *slog.Logger

	mu        sync.Mutex
	unwritten map[string]bool // guarded by mu: the apps whose log has not been opened yet
}

func newAppLogs(pod *plan.Pod, log *slog.Logger) *appLogs {
	a := &appLogs{dir: names.LogDir, options: pod.Config.Log, log: log, unwritten: make(map[string]bool)}
	for _, app := range pod.Apps {
		a.unwritten[app.Name] = true
	}
	return a
}

// accept writes an app's log from a channel that the guest has opened. A guest can
// write the logs of the pod's own apps, each once.
func (a *appLogs) accept(ch *line.Channel, req request) {
	a.mu.Lock()
	first := a.unwritten[req.App]
	delete(a.unwritten, req.App)
	a.mu.Unlock()
	if !first {
		refuse(ch, errors.New("there is no such log to be written"))
		return
	}
	log := a.log.With("app", req.App)
	writer, err := crilog.Open(filepath.Join(a.dir, req.App), crilog.Options{
		MaxSize: a.options.MaxSize, MaxFiles: a.options.MaxFiles, Logger: log,
	})
	if err != nil {
		log.Error("open log", "error", err)
		refuse(ch, err)
		return
	}
	var copies sync.WaitGroup
	for stream, name := range map[int]crilog.Stream{1: crilog.Stdout, 2: crilog.Stderr} {
		copies.Go(func() { _, _ = io.Copy(logStream{writer, name}, ch.Reader(stream)) }) // to the end, or the guest's
	}
	copies.Wait()
	if err := writer.Close(); err != nil {
		log.Error("end log", "error", err)
	}
	_ = ch.Close(nil) // a guest that is lost waits for nothing
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
