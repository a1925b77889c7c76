package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
)

// loggedLine is a line of an app's log.
type loggedLine struct {
	when   time.Time
	stamp  string // when, as the log has it
	stream string
	text   string
	whole  bool // it ends in a newline
}

// mergeLogs prints the lines that the apps have written so far, in the order of time; lines of
// one time stay in the order of the apps.
func (c *cli) mergeLogs(ctx context.Context, pod *pods.Pod, apps []string, o logsOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reading sync.WaitGroup
	sources := make([]chan loggedLine, len(apps))
	errs := make([]error, len(apps))
	for i, name := range apps {
		sources[i] = make(chan loggedLine, 256)
		reading.Go(func() {
			defer close(sources[i])
			errs[i] = c.readLines(ctx, pod, name, o.LogOptions, sources[i])
		})
	}
	err := c.printMerged(apps, sources, o)
	cancel() // a reader may still send, of what is not wanted
	reading.Wait()
	return errors.Join(append(errs, err)...)
}

// readLines sends the lines of an app's log. It ends without an error when ctx ends.
func (c *cli) readLines(ctx context.Context, pod *pods.Pod, app string, o daemon.LogOptions, to chan<- loggedLine) error {
	stdout := &lineSender{ctx: ctx, stream: "stdout", to: to}
	stderr := &lineSender{ctx: ctx, stream: "stderr", to: to}
	o.Timestamps = true
	err := c.daemon.Logs(ctx, pod, app, o, stdout, stderr)
	err = errors.Join(err, stdout.flush(), stderr.flush())
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lineSender sends the lines that are written to it with their times. Lines without a time
// are messages of a call-in.
type lineSender struct {
	ctx    context.Context
	stream string
	to     chan<- loggedLine
	rest   []byte // a line without its end
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
	if len(l.rest) == 0 {
		return nil
	}
	return l.send(l.rest, false)
}

func (l *lineSender) send(text []byte, whole bool) error {
	line := loggedLine{stream: l.stream, whole: whole}
	line.stamp, line.text, _ = strings.Cut(string(text), " ")
	var err error
	if line.when, err = time.Parse(time.RFC3339Nano, line.stamp); err != nil {
		return errors.New(string(text))
	}
	select {
	case l.to <- line:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// printMerged prints the lines of all sources, the earliest first. Each source is in the order of
// time.
func (c *cli) printMerged(apps []string, sources []chan loggedLine, o logsOptions) (err error) {
	var writing sync.Mutex
	heads := make([]*loggedLine, len(sources))
	printers := make([]func(loggedLine) error, len(sources))
	take := func(i int) {
		heads[i] = nil
		if line, ok := <-sources[i]; ok && (o.until.IsZero() || line.when.Before(o.until)) {
			heads[i] = &line
		}
	}
	for i, name := range apps {
		stdout, stderr, flush := c.appStreams(&writing, apps, name)
		defer func() { err = errors.Join(err, flush()) }()
		printers[i] = func(line loggedLine) error { return c.printLine(stdout, stderr, name, line, o, len(apps) > 1) }
		take(i)
	}
	for {
		first := -1
		for i, head := range heads {
			if head != nil && (first < 0 || head.when.Before(heads[first].when)) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		if err := printers[first](*heads[first]); err != nil {
			return err
		}
		take(first)
	}
}

func (c *cli) printLine(stdout, stderr io.Writer, app string, line loggedLine, o logsOptions, several bool) error {
	if c.json {
		return c.printLineJSON(app, line)
	}
	text := line.text
	if o.Timestamps {
		text = line.stamp + " " + text
	}
	if line.whole || several {
		text += "\n"
	}
	to := stdout
	if line.stream == "stderr" {
		to = stderr
	}
	_, err := io.WriteString(to, text)
	return err
}

// printLineJSON prints a long line in parts, as logsJSON does.
func (c *cli) printLineJSON(app string, line loggedLine) error {
	object := logLine{Time: line.stamp, Stream: line.stream, App: app, Partial: true}
	for text := line.text; ; {
		if len(text) <= maxPart {
			object.Message, object.Partial = text, false
			return c.printJSON(object)
		}
		size := wholeRunes([]byte(text[:maxPart]))
		object.Message, text = text[:size], text[size:]
		if err := c.printJSON(object); err != nil {
			return err
		}
	}
}

// stagerLog prints the stager's own log; with follow it goes on until the pod has ended.
func (c *cli) stagerLog(ctx context.Context, pod *pods.Pod, follow bool) error {
	log, err := os.Open(pod.LogPath())
	if err != nil {
		return fmt.Errorf("read the stager's log of pod %q: %w", pod.Plan.Name, err)
	}
	defer log.Close()
	lines := &stagerLogFile{file: log}
	for {
		// In this order: a pod that has ended writes nothing any more.
		ended := !follow || pod.Refresh() != nil || pod.Ended()
		if err := c.copyStagerLog(lines); err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookForLines):
		}
	}
}

// lookForLines is how often the stager's log is looked at for more lines.
const lookForLines = 50 * time.Millisecond

// copyStagerLog prints what has been added to the log, with --json as objects.
func (c *cli) copyStagerLog(log io.Reader) error {
	if !c.json {
		stdout, flush := c.escape(c.stdout, c.stdout)
		_, err := io.Copy(stdout, log)
		return errors.Join(err, flush())
	}
	return copyParts(log, func(text string, _ bool) error {
		return c.printJSON(struct {
			Message string `json:"message"`
		}{text})
	})
}
