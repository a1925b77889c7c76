// Package plaintext changes text that strangers have chosen, such as images, apps and servers, so that a terminal shows
// it and does not obey it: control characters become escapes.
package plaintext

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns a text as one line: its own lines are separated by "; ", and characters that are not printable
// (unicode.IsPrint) are escaped as in Go's strings.
func Line(text string) string {
	var line strings.Builder
	for rest := strings.ReplaceAll(text, "\n", "; "); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			escaped := strconv.Quote(rest[:size])
			line.WriteString(escaped[1 : len(escaped)-1])
		} else {
			line.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return line.String()
}

// JSON returns an equivalent JSON document with only printable characters in strings.
// White space between the tokens stays.
func JSON(document []byte) []byte {
	out := make([]byte, 0, len(document))
	for rest := document; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...) // what a reader makes of it
		case r == ' ' || r == '\n' || unicode.IsPrint(r):
			out = append(out, rest[:size]...)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		rest = rest[size:]
	}
	return out
}

// Writer writes an app's output for a terminal: each byte of a control character, but newline and tab, becomes \xNN.
// Control characters are all below 0x20, 0x7f, and 0x80 to 0x9f, in UTF-8 or as a byte of their own.
type Writer struct {
	to   io.Writer
	rest []byte // the beginning of a character that the end of the last Write cut in two
}

// NewWriter returns a Writer to another one. One goroutine at a time may use it.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write implements io.Writer. It keeps the beginning of a character that is cut in two for the next call, or for Flush.
func (w *Writer) Write(data []byte) (int, error) {
	text := append(w.rest, data...)
	w.rest = nil
	var out []byte
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			w.rest = text
			break
		}
		r, size := utf8.DecodeRune(text)
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && (r != utf8.RuneError || size > 1) {
			out = append(out, text[:size]...)
		} else {
			out = appendEscaped(out, text[:size])
		}
		text = text[size:]
	}
	if _, err := w.to.Write(out); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Flush writes the beginning of a character without an end.
func (w *Writer) Flush() error {
	text := w.rest
	w.rest = nil
	if len(text) == 0 {
		return nil
	}
	_, err := w.to.Write(appendEscaped(nil, text))
	return err
}

func appendEscaped(out, text []byte) []byte {
	for _, b := range text {
		out = fmt.Appendf(out, `\x%02x`, b)
	}
	return out
}
