package main

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"kurma.io/stager/internal/plaintext"
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

// escape returns a writer to to, for a stream of the caller: one that escapes control characters if that stream is a
// terminal and c.escapes says so. flush ends a last character.
func (c *cli) escape(to, stream io.Writer) (escaped io.Writer, flush func() error) {
	if !c.escapes || !isTerminal(stream) {
		return to, func() error { return nil }
	}
	w := plaintext.NewWriter(to)
	return w, w.Flush
}

// printOutput prints the last output of apps.
func printOutput(out io.Writer, all []pods.AppOutput) {
	for _, app := range all {
		fmt.Fprintf(out, "launcher: last output of app %q:\n", app.App)
		for _, line := range app.Lines {
			fmt.Fprintf(out, "  %s\n", printable(line))
		}
	}
}
