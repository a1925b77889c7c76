package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"kurma.io/stager/internal/plaintext"
)

// table prints rows in columns on stdout.
type table struct{ out *tabwriter.Writer }

// table begins a table with its heads.
func (c *cli) table(heads ...any) *table {
	t := &table{tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)}
	t.row(heads...)
	return t
}

// row adds a row. A cell is printable, whoever has chosen its text, and an empty one is a dash.
func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = dash(printable(fmt.Sprint(cell)))
	}
	fmt.Fprintln(t.out, strings.Join(texts, "\t"))
}

// flush prints the table.
func (t *table) flush() error { return t.out.Flush() }

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

// printAll prints values as JSON, one a line.
func printAll[T any](c *cli, all []T) error {
	for _, v := range all {
		if err := c.printJSON(v); err != nil {
			return err
		}
	}
	return nil
}
