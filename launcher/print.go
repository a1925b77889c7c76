package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// table prints rows in columns on stdout.
type table struct {
	out  io.Writer
	rows [][]string
	cut  []int // the columns with cells that are shortened on a terminal until the rows fit lineWidth
}

// lineWidth is the width of a terminal that shows each row of a table in one line.
const lineWidth = 80

// table begins a table with its heads.
func (c *cli) table(heads ...any) *table {
	t := &table{out: c.stdout}
	t.row(heads...)
	return t
}

// row adds a row. A cell is printable, whoever has chosen its text, and an empty one is a dash.
func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = dash(printable(fmt.Sprint(cell)))
	}
	t.rows = append(t.rows, texts)
}

// flush prints the table.
func (t *table) flush() error {
	if len(t.cut) > 0 && isTerminal(t.out) { // a pipe's reader searches for whole names
		t.narrow()
	}
	out := tabwriter.NewWriter(t.out, 0, 8, gap, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	return out.Flush()
}

// gap is the number of spaces between two columns.
const gap = 2

// narrow shortens the longest cells until each row fits a line, or nothing is left to cut.
func (t *table) narrow() {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := gap * (len(widths) - 1)
	for _, width := range widths {
		total += width
	}
	const least = 8 // characters that still tell a cell from others
	for ; total > lineWidth; total-- {
		widest := slices.MaxFunc(t.cut, func(a, b int) int { return widths[a] - widths[b] })
		if widths[widest] <= least {
			break
		}
		widths[widest]--
	}
	for _, row := range t.rows {
		for _, i := range t.cut {
			row[i] = shortened(row[i], widths[i])
		}
	}
}

// shortened returns the text with at most so many characters: its beginning and its end.
func shortened(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	head := most / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(most-head-1):])
}

// line prints a line on stdout. Strangers may have chosen parts of the text.
func (c *cli) line(text string) error {
	_, err := fmt.Fprintln(c.stdout, plaintext.Line(text))
	return err
}

// say prints a message for a person on stderr. Strangers may have chosen parts of the text.
func (c *cli) say(text string) { fmt.Fprintln(c.stderr, "launcher:", plaintext.Line(text)) }

// warn prints warnings, a line each.
func (c *cli) warn(warnings ...string) {
	if len(warnings) > 0 && isTerminal(c.stderr) {
		fmt.Fprint(c.stderr, eraseLine) // of busy
	}
	for _, warning := range warnings {
		c.say("warning: " + warning)
	}
}

// showWarnings prints what the stager has warned of while the pod started: the person who has started
// it would have to look into the stager's log for it.
func (c *cli) showWarnings(pod *pods.Pod) {
	for _, w := range c.daemon.Warnings(pod) {
		c.warn(fmt.Sprintf("pod %q: %s", pod.Plan.Name, warningText(w)))
	}
}

func warningText(w daemon.StagerWarning) string {
	text := w.Text
	if w.App != "" {
		text = fmt.Sprintf("app %q: %s", w.App, text)
	}
	if text = printable(text); w.Why != "" {
		text += ": " + printable(w.Why)
	}
	return text
}

// printJSON prints a value as JSON in one line.
func (c *cli) printJSON(v any) error { return c.printIndented(v, "") }

// printIndented prints a value as JSON. Its strings have no characters that a terminal obeys.
func (c *cli) printIndented(v any, indent string) error {
	var document bytes.Buffer
	out := json.NewEncoder(&document)
	out.SetEscapeHTML(false)
	out.SetIndent("", indent)
	if err := out.Encode(v); err != nil {
		return err
	}
	_, err := c.stdout.Write(plaintext.JSON(document.Bytes()))
	return err
}

// printOne prints a value as JSON, or else its text in a line.
func (c *cli) printOne(v any, text string) error {
	if c.json {
		return c.printJSON(v)
	}
	return c.line(text)
}

// printAll prints values as JSON, one a line.
func printAll[T any](c *cli, all []T) error {
	for _, v := range all {
		if err := c.printJSON(v); err != nil {
			return err
		}
	}
	return nil
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if w, ok := stream.(*watched); ok {
		stream = w.Writer
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// isNull reports whether a stream is the null device.
func isNull(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
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
