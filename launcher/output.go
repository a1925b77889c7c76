package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"sync"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/term"
)

// labeller writes the output of several apps to one place: whole lines, with the app's name
// before each.
type labeller struct {
	out     io.Writer
	writing *sync.Mutex // held for one line; all streams of all apps share it
	label   string
	rest    []byte // a line without its end
}

// Write implements io.Writer.
func (l *labeller) Write(data []byte) (int, error) {
	text := append(l.rest, data...)
	end := bytes.LastIndexByte(text, '\n') + 1
	l.rest = slices.Clone(text[end:])
	if end == 0 {
		return len(data), nil
	}
	return len(data), l.print(text[:end])
}

func (l *labeller) print(lines []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	var b bytes.Buffer
	for line := range bytes.Lines(lines) {
		b.WriteString(l.label)
		b.Write(line)
	}
	_, err := l.out.Write(b.Bytes())
	return err
}

// flush writes a last line that has no newline, with one.
func (l *labeller) flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	line := append(l.rest, '\n')
	l.rest = nil
	return l.print(line)
}

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

// appStreams returns where the output of one of the apps goes: to the caller's streams; if there
// are several apps, line by line and labelled.
// flush ends a last line.
func (c *cli) appStreams(writing *sync.Mutex, apps []string, app string) (stdout, stderr io.Writer, flush func() error) {
	if len(apps) < 2 {
		stdout, flushOut := c.escape(c.stdout, c.stdout)
		stderr, flushErr := c.escape(c.stderr, c.stderr)
		return stdout, stderr, func() error { return errors.Join(flushOut(), flushErr()) }
	}
	width := 0
	for _, name := range apps {
		width = max(width, len(name))
	}
	var streams [2]*labeller
	for i, out := range []io.Writer{c.stdout, c.stderr} {
		streams[i] = &labeller{out: out, writing: writing, label: appLabel(app, width, isTerminal(out))}
	}
	stdout, flushOut := c.escape(streams[0], c.stdout)
	stderr, flushErr := c.escape(streams[1], c.stderr)
	return stdout, stderr, func() error {
		return errors.Join(flushOut(), streams[0].flush(), flushErr(), streams[1].flush())
	}
}

// escape returns a writer to to, which writes to a stream of the caller: one that escapes control characters if that
// stream is a terminal and c.escapes says so. flush ends a last character.
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
