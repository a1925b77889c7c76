package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"kurma.io/stager/internal/plaintext"
)

// oneLine returns an error's text in one line, which a terminal shows and does not obey: a server or a file may have
// chosen parts of it.
func oneLine(err error) string { return plaintext.Line(err.Error()) }

// printable returns a text from a manifest or the command line as a table or an error
// can show it: quoted if it has characters that a terminal would not just show, and
// shortened.
func printable(text string) string {
	const enough = 200
	more := ""
	if len(text) > enough {
		text, more = text[:enough], "…"
	}
	if strings.IndexFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(text) + more
	}
	return text + more
}

// quoted is printable, always in quotes.
func quoted(text string) string {
	if safe := printable(text); safe != text {
		return safe
	}
	return `"` + text + `"`
}

func dash(text string) string { return cmp.Or(text, "-") }

// codeText is an exit code, or "?" if it is not known.
func codeText(code *int) string {
	if code == nil {
		return "?"
	}
	return strconv.Itoa(*code)
}

// shortID is the start of an image's ID, which commands accept.
func shortID(id string) string {
	_, hex, _ := strings.Cut(id, "-")
	return hex[:12]
}

// inUTF8 refuses arguments that JSON would change.
func inUTF8(command string, words []string) error {
	for _, word := range words {
		if !utf8.ValidString(word) {
			return usageError{fmt.Sprintf("%s: argument %q is not UTF-8", command, word)}
		}
	}
	return nil
}

// localTime is a time in the zone that zone names.
func localTime(t time.Time) string { return t.Local().Format(time.DateTime) }

// localMinute is localTime without the seconds.
func localMinute(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

// zone is the local time zone, for the heads of tables.
func zone() string {
	name, _ := time.Now().Zone()
	return name
}
