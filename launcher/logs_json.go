package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"kurma.io/stager/launcher/pods"
)

// logLine is a line of `logs --json`.
type logLine struct {
	Time    string `json:"time"` // RFC 3339, when the line began
	Stream  string `json:"stream"`
	App     string `json:"app"`
	Message string `json:"message"`           // without the newline; what is not UTF-8 is U+FFFD
	Partial bool   `json:"partial,omitempty"` // the line goes on in the stream's next object
}

// logsJSON reads the app's log with times and prints each line as an object. The order
// of lines of one stream is the log's; those of two streams that were written at
// the same time may change places.
func (c *cli) logsJSON(ctx context.Context, pod *pods.Pod, options []string, app string) error {
	var printing sync.Mutex
	stdout, outDone, err := eachPiece((&linePrinter{cli: c, app: app, stream: "stdout", printing: &printing}).take)
	if err != nil {
		return err
	}
	stderr, errDone, err := eachPiece((&linePrinter{cli: c, app: app, stream: "stderr", printing: &printing}).take)
	if err != nil {
		return errors.Join(err, stdout.Close(), <-outDone)
	}
	err = c.readLog(ctx, pod, options, stdout, stderr)
	_, _ = stdout.Close(), stderr.Close()
	for _, done := range []<-chan error{outDone, errDone} {
		select {
		case e := <-done:
			err = errors.Join(err, e)
		case <-ctx.Done(): // whoever reads what we print has stopped reading
		}
	}
	return err
}

// linePrinter prints what comes of one stream.
type linePrinter struct {
	cli         *cli
	app, stream string
	printing    *sync.Mutex // the streams' own

	when string // of the line that has begun, "" between lines
}

// take prints a line, which begins with its time, or a piece of one that more
// comes of. A line that does not begin with a time is the call-in's own word.
func (p *linePrinter) take(text string, more bool) error {
	p.printing.Lock()
	defer p.printing.Unlock()
	when, message := p.when, text
	if when == "" {
		when, message, _ = strings.Cut(text, " ")
		if _, err := time.Parse(time.RFC3339Nano, when); err != nil {
			_, err := fmt.Fprintln(p.cli.stderr, text)
			return err
		}
	}
	if p.when = when; !more {
		p.when = ""
	}
	return p.cli.printJSON(logLine{Time: when, Stream: p.stream, App: p.app, Message: message, Partial: more})
}

// eachPiece gives the write end of a pipe, every line of which is given to do, a
// long one in pieces. When the write end is closed, or do fails, done has the first error.
func eachPiece(do func(text string, more bool) error) (write *os.File, done <-chan error, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := copyPieces(read, do)
		_ = read.Close() // a writer that goes on hears of it
		ended <- err
	}()
	return write, ended, nil
}

// maxPiece bounds what is held of a line, in bytes.
const maxPiece = 64 << 10

func copyPieces(from io.Reader, do func(text string, more bool) error) error {
	in := bufio.NewReaderSize(from, maxPiece)
	var rest []byte // of a character that the last piece was cut in
	for {
		text, readErr := in.ReadSlice('\n')
		more := errors.Is(readErr, bufio.ErrBufferFull)
		text = append(rest, text...)
		if rest = nil; more {
			whole := wholeRunes(text)
			text, rest = text[:whole], slices.Clone(text[whole:])
		}
		if len(text) > 0 {
			if err := do(strings.TrimSuffix(string(text), "\n"), more); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return nil
		case readErr != nil && !more:
			return readErr
		}
	}
}

// wholeRunes is how many bytes of text there are before a character that is cut
// off at its end.
func wholeRunes(text []byte) int {
	for n := 1; n <= min(utf8.UTFMax, len(text)); n++ {
		if at := len(text) - n; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				return at
			}
			break
		}
	}
	return len(text)
}
