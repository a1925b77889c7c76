package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/term"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if w, ok := stream.(*watched); ok {
		stream = w.Writer
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// appLabel is what stands before an app's lines: the name, padded to width, on a terminal in a
// colour that is always the app's unless the user wants none (https://no-color.org).
func appLabel(app string, width int, terminal bool) string {
	text := fmt.Sprintf("%-*s | ", width, app)
	if !terminal || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	colours := []int{32, 33, 34, 35, 36, 92, 93, 94, 95, 96}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(app)) // a hash takes every byte
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colours[sum.Sum32()%uint32(len(colours))], text)
}

// logLine is a line of `logs --json`.
type logLine struct {
	Time    string `json:"time"` // RFC 3339, when the line began
	Stream  string `json:"stream"`
	App     string `json:"app"`
	Message string `json:"message"`           // without the newline, each byte that is not UTF-8 as U+FFFD
	Partial bool   `json:"partial,omitempty"` // the stream's next object has more of the line
}

// linePrinter prints lines of logs: as JSON, or to the caller's streams. Of several apps it prints whole lines, each
// after its app's label.
type linePrinter struct {
	cli   *cli
	times bool
	width int               // of the labels, 0 for none
	begun map[string]string // the beginnings of long lines, by app and stream
}

func (c *cli) newLinePrinter(apps []string, times bool) *linePrinter {
	p := &linePrinter{cli: c, times: times, begun: make(map[string]string)}
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
	if line.First && p.times {
		text = line.Stamp + " " + text
	}
	if p.width > 0 {
		key := line.App + " " + line.Stream
		text = p.begun[key] + text
		if delete(p.begun, key); line.More {
			p.begun[key] = text
			return nil
		}
		label = appLabel(line.App, p.width, isTerminal(out))
	}
	if line.Whole || p.width > 0 {
		text += "\n"
	}
	var b bytes.Buffer
	b.WriteString(label)
	escaped, flush := p.cli.escape(&b, out)
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

// escape returns a writer to to, for a stream of the caller: one that escapes control characters if that stream is a
// terminal and c.escapes says so. flush ends a last character.
func (c *cli) escape(to, stream io.Writer) (escaped io.Writer, flush func() error) {
	if !c.escapes || !isTerminal(stream) {
		return to, func() error { return nil }
	}
	w := plaintext.NewWriter(to)
	return w, w.Flush
}

// printOutput prints what apps have written last.
func printOutput(out io.Writer, all []pods.AppOutput) {
	for _, app := range all {
		fmt.Fprintf(out, "launcher: app %q has written:\n", app.App)
		for _, line := range app.Lines {
			fmt.Fprintf(out, "  %s\n", printable(line))
		}
	}
}
