package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// oneLine is an error's text; where several errors are joined, one after the other.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// shown is a text that somebody else has chosen, as a table or an error may show it:
// as it is, or quoted where it would not stay in its place, and not for ever long.
func shown(text string) string {
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

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func shortID(id string) string { return id[:len("sha512-")+12] }

// inUTF8 refuses words that JSON could not hand on as they are.
func inUTF8(command string, words []string) error {
	for _, word := range words {
		if !utf8.ValidString(word) {
			return usageError{fmt.Sprintf("%s: argument %q is not UTF-8", command, word)}
		}
	}
	return nil
}
