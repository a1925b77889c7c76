package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
)

// showLogs shows the output of apps: that of one app byte for byte.
func (c *cli) showLogs(ctx context.Context, pod *pods.Pod, apps []string, o logsOptions) error {
	if len(apps) == 1 && o.until.IsZero() && !c.json {
		stdout, flushOut := c.escape(c.stdout, c.stdout)
		stderr, flushErr := c.escape(c.stderr, c.stderr)
		return errors.Join(c.daemon.Logs(ctx, pod, apps[0], o.LogOptions, stdout, stderr), flushOut(), flushErr())
	}
	printer := c.newLinePrinter(apps, o.Timestamps)
	return c.daemon.LogLines(ctx, pod, apps, o.LogOptions, func(line daemon.LogLine) error {
		if !o.until.IsZero() && !line.Time.Before(o.until) {
			return nil // an earlier one may come
		}
		return printer.print(line)
	})
}

// stagerLog prints the stager's own log, with --json as objects.
func (c *cli) stagerLog(ctx context.Context, pod *pods.Pod, follow bool) error {
	if c.json {
		w := &messageWriter{cli: c}
		return errors.Join(c.daemon.StagerLog(ctx, pod, follow, w), w.flush())
	}
	stdout, flush := c.escape(c.stdout, c.stdout)
	return errors.Join(c.daemon.StagerLog(ctx, pod, follow, stdout), flush())
}

// logLine is a line of `logs --json`.
type logLine struct {
	Time    string `json:"time"` // RFC 3339, when the line began
	Stream  string `json:"stream"`
	App     string `json:"app"`
	Message string `json:"message"`           // without the newline, each byte that is not UTF-8 as U+FFFD
	Partial bool   `json:"partial,omitempty"` // the stream's next object has more of the line
}

// linePrinter prints lines of logs: as JSON, or to the caller's streams. Of several apps it prints each line, or part
// of a long one, as a line after its app's label: a line need not end.
type linePrinter struct {
	cli   *cli
	times bool
	width int // of the labels, 0 for none
}

func (c *cli) newLinePrinter(apps []string, times bool) *linePrinter {
	p := &linePrinter{cli: c, times: times}
	for _, name := range apps {
		if len(apps) > 1 {
			p.width = max(p.width, len(name))
		}
	}
	return p
}

func (p *linePrinter) print(line daemon.LogLine) error {
	if line.Stamp == "" {
		_, err := fmt.Fprintln(p.cli.stderr, plaintext.Line(line.Text))
		return err
	}
	if p.cli.json {
		return p.cli.printJSON(logLine{line.Stamp, line.Stream, line.App, line.Text, line.More})
	}
	text, label, out := line.Text, "", p.cli.stdout
	if line.Stream == "stderr" {
		out = p.cli.stderr
	}
	if p.times && (line.First || p.width > 0) {
		text = line.Stamp + " " + text
	}
	if p.width > 0 {
		label = appLabel(line.App, p.width, isTerminal(out))
	}
	if line.Whole || p.width > 0 {
		text += "\n"
	}
	return p.cli.printEscaped(out, label, text)
}

// printEscaped writes a label and a text without control characters for a terminal, in one write.
func (c *cli) printEscaped(out io.Writer, label, text string) error {
	var b bytes.Buffer
	b.WriteString(label)
	escaped, flush := c.escape(&b, out)
	_, err := io.WriteString(escaped, text)
	err = errors.Join(err, flush())
	if err == nil {
		_, err = out.Write(b.Bytes())
	}
	return err
}

// messageWriter prints each line that is written to it as an object.
type messageWriter struct {
	cli  *cli
	rest []byte // a line without its end
}

// Write implements io.Writer.
func (w *messageWriter) Write(data []byte) (int, error) {
	for line := range bytes.Lines(append(w.rest, data...)) {
		text, whole := bytes.CutSuffix(line, []byte("\n"))
		if w.rest = nil; !whole {
			w.rest = bytes.Clone(text)
			break
		}
		message := struct {
			Message string `json:"message"`
		}{string(text)}
		if err := w.cli.printJSON(message); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// flush prints a last line that has no newline.
func (w *messageWriter) flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.Write([]byte("\n"))
	return err
}
