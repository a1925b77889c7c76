package main

import (
	"context"
	"errors"
	"io"
	"sync"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
)

// mergeLogs prints the lines that the apps have written so far, in the order of time.
func (c *cli) mergeLogs(ctx context.Context, pod *pods.Pod, apps []string, o logsOptions) (err error) {
	var writing sync.Mutex
	printers := make(map[string]func(daemon.LogLine) error)
	for _, name := range apps {
		stdout, stderr, flush := c.appStreams(&writing, apps, name)
		defer func() { err = errors.Join(err, flush()) }()
		printers[name] = func(line daemon.LogLine) error { return c.printLine(stdout, stderr, line, o, len(apps) > 1) }
	}
	return c.daemon.LogLines(ctx, pod, apps, o.LogOptions, func(line daemon.LogLine) (bool, error) {
		if !o.until.IsZero() && !line.Time.Before(o.until) {
			return false, nil // and so is every later one
		}
		return true, printers[line.App](line)
	})
}

func (c *cli) printLine(stdout, stderr io.Writer, line daemon.LogLine, o logsOptions, several bool) error {
	if c.json {
		return c.printLineJSON(line)
	}
	text := line.Text
	if o.Timestamps {
		text = line.Stamp + " " + text
	}
	if line.Whole || several {
		text += "\n"
	}
	to := stdout
	if line.Stream == "stderr" {
		to = stderr
	}
	_, err := io.WriteString(to, text)
	return err
}

// printLineJSON prints a long line in parts, as logsJSON does.
func (c *cli) printLineJSON(line daemon.LogLine) error {
	object := logLine{Time: line.Stamp, Stream: line.Stream, App: line.App, Partial: true}
	for text := line.Text; ; {
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

// stagerLog prints the stager's own log, with --json as objects.
func (c *cli) stagerLog(ctx context.Context, pod *pods.Pod, follow bool) error {
	if !c.json {
		stdout, flush := c.escape(c.stdout, c.stdout)
		return errors.Join(c.daemon.StagerLog(ctx, pod, follow, stdout), flush())
	}
	objects, printed, err := eachPart(func(text string, _ bool) error {
		return c.printJSON(struct {
			Message string `json:"message"`
		}{text})
	})
	if err != nil {
		return err
	}
	err = c.daemon.StagerLog(ctx, pod, follow, objects)
	return errors.Join(err, objects.Close(), <-printed)
}
