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

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
)

// logLine is a line of `logs --json`.
type logLine struct {
	Time    string `json:"time"` // RFC 3339, when the line began
	Stream  string `json:"stream"`
	App     string `json:"app"`
	Message string `json:"message"`           // without the newline, each byte that is not UTF-8 as U+FFFD
	Partial bool   `json:"partial,omitempty"` // the stream's next object has more of the line
}

// logsJSON reads the app's log with times and prints each line as an object. It keeps
// the order of each stream's lines. Lines of two streams that were written at the same
// time may change places. It holds printing for each line.
func (c *cli) logsJSON(ctx context.Context, pod *pods.Pod, o daemon.LogOptions, app string, printing *sync.Mutex) error {
	stdout, outDone, err := eachPart((&linePrinter{cli: c, app: app, stream: "stdout", printing: printing}).take)
	if err != nil {
		return err
	}
	stderr, errDone, err := eachPart((&linePrinter{cli: c, app: app, stream: "stderr", printing: printing}).take)
	if err != nil {
		return errors.Join(err, stdout.Close(), <-outDone)
	}
	o.Timestamps = true
	err = c.daemon.Logs(ctx, pod, app, o, stdout, stderr)
	_, _ = stdout.Close(), stderr.Close()
	for _, done := range []<-chan error{outDone, errDone} {
		select {
		case e := <-done:
			err = errors.Join(err, e)
		case <-ctx.Done(): // the reader of our output has stopped reading
		}
	}
	return err
}

// linePrinter prints the lines of one stream.
type linePrinter struct {
	cli         *cli
	app, stream string
	printing    *sync.Mutex // held for one line; all streams share it

	when string // time of the line that has begun, "" between lines
}

// take prints a line, which begins with its time, or a part of a line; more says that
// another part follows. A line that does not begin with a time is a message of the
// call-in itself.
func (p *linePrinter) take(text string, more bool) error {
	p.printing.Lock()
	defer p.printing.Unlock()
	when, message := p.when, text
	if when == "" {
		when, message, _ = strings.Cut(text, " ")
		if _, err := time.Parse(time.RFC3339Nano, when); err != nil {
			_, err := fmt.Fprintln(p.cli.stderr, plaintext.Line(text))
			return err
		}
	}
	if p.when = when; !more {
		p.when = ""
	}
	return p.cli.printJSON(logLine{Time: when, Stream: p.stream, App: p.app, Message: message, Partial: more})
}

// eachPart returns the write end of a pipe and calls do with each line that is written
// to it, a long line in parts. When the write end is closed, or do fails, done
// receives the first error.
func eachPart(do func(text string, more bool) error) (write *os.File, done <-chan error, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := copyParts(read, do)
		_ = read.Close() // the next write fails
		ended <- err
	}()
	return write, ended, nil
}

// maxPart is the maximum size of a part, in bytes.
const maxPart = 64 << 10

func copyParts(from io.Reader, do func(text string, more bool) error) error {
	in := bufio.NewReaderSize(from, maxPart)
	var rest []byte // the beginning of a character that the end of the last part cut in two
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

// wholeRunes returns the length of text without an incomplete character at its end.
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
