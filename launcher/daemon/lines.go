package daemon

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/launcher/pods"
)

// LogLine is a line of an app's log.
type LogLine struct {
	App    string
	Time   time.Time
	Stamp  string // the time, as the log has it
	Stream string // "stdout" or "stderr"
	Text   string // without the newline
	Whole  bool   // the line ends in a newline
}

// LogLines calls each with the lines that apps have written so far, in the order of time, until each returns false or
// an error. Lines of one time stay in the order of the apps.
func (d *Daemon) LogLines(ctx context.Context, pod *pods.Pod, apps []string, o LogOptions, each func(LogLine) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.Follow, o.Timestamps = false, true
	var reading sync.WaitGroup
	sources := make([]chan LogLine, len(apps))
	errs := make([]error, len(apps))
	for i, app := range apps {
		sources[i] = make(chan LogLine, 256)
		reading.Go(func() {
			defer close(sources[i])
			errs[i] = d.readLines(ctx, pod, app, o, sources[i])
		})
	}
	err := mergeLines(sources, each)
	cancel() // a reader may still send, of what is not wanted
	reading.Wait()
	return errors.Join(append(errs, err)...)
}

// readLines sends the lines of an app's log. It ends without an error when ctx ends.
func (d *Daemon) readLines(ctx context.Context, pod *pods.Pod, app string, o LogOptions, to chan<- LogLine) error {
	stdout := &lineSender{ctx: ctx, app: app, stream: "stdout", to: to}
	stderr := &lineSender{ctx: ctx, app: app, stream: "stderr", to: to}
	err := d.Logs(ctx, pod, app, o, stdout, stderr)
	err = errors.Join(err, stdout.flush(), stderr.flush())
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// mergeLines calls each with the lines of all sources, the earliest first. Each source is in the order of time.
func mergeLines(sources []chan LogLine, each func(LogLine) (more bool, err error)) error {
	heads := make([]*LogLine, len(sources))
	take := func(i int) {
		heads[i] = nil
		if line, ok := <-sources[i]; ok {
			heads[i] = &line
		}
	}
	for i := range sources {
		take(i)
	}
	for {
		first := -1
		for i, head := range heads {
			if head != nil && (first < 0 || head.Time.Before(heads[first].Time)) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		if more, err := each(*heads[first]); err != nil || !more {
			return err
		}
		take(first)
	}
}

// lineSender sends the lines that are written to it with their times. Lines without a time
// are messages of a call-in.
type lineSender struct {
	ctx         context.Context
	app, stream string
	to          chan<- LogLine
	rest        []byte // a line without its end
}

// Write implements io.Writer.
func (l *lineSender) Write(data []byte) (int, error) {
	size := len(data)
	for {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			l.rest = append(l.rest, data...)
			return size, nil
		}
		if err := l.send(append(l.rest, data[:end]...), true); err != nil {
			return 0, err
		}
		l.rest, data = nil, data[end+1:]
	}
}

func (l *lineSender) flush() error {
	rest := l.rest
	l.rest = nil
	if len(rest) == 0 {
		return nil
	}
	return l.send(rest, false)
}

func (l *lineSender) send(text []byte, whole bool) error {
	line := LogLine{App: l.app, Stream: l.stream, Whole: whole}
	line.Stamp, line.Text, _ = strings.Cut(string(text), " ")
	var err error
	if line.Time, err = time.Parse(time.RFC3339Nano, line.Stamp); err != nil {
		return errors.New(string(text))
	}
	select {
	case l.to <- line:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}
