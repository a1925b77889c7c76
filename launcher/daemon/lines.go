package daemon

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"kurma.io/stager/launcher/pods"
)

// LogLine is a line of an app's log, or a part of a long one.
type LogLine struct {
	App    string
	Time   time.Time // when the line began
	Stamp  string    // the time, as the log has it; "" if Text is a message of the stager's call-in
	Stream string    // "stdout" or "stderr"
	Text   string    // without the newline
	First  bool      // the line begins here
	More   bool      // the next part of the stream has more of the line
	Whole  bool      // the line ends here, in a newline
}

// LogLines calls each with the lines that apps have written so far, until each returns an error. They are in the order
// of time, but a line that another stream of its app has interrupted comes when it has ended. Lines of one time stay in
// the order of the apps. With Follow it calls each with the lines as they are written.
func (d *Daemon) LogLines(ctx context.Context, pod *pods.Pod, apps []string, o LogOptions,
	each func(LogLine) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.Timestamps = true
	sources, wait := d.startReaders(ctx, pod, apps, o)
	err := mergeLines(sources, each)
	cancel() // a reader may still send unwanted lines
	return errors.Join(wait(), err)
}

// startReaders reads the apps' lines into a channel for each app, or with Follow into one for all. wait returns the
// errors of the readers when they have ended.
func (d *Daemon) startReaders(ctx context.Context, pod *pods.Pod, apps []string, o LogOptions,
) (sources []chan LogLine, wait func() error) {
	var reading sync.WaitGroup
	errs := make([]error, len(apps))
	all := make(chan LogLine, 256)
	for i, app := range apps {
		lines, done := all, func() {}
		if !o.Follow {
			lines = make(chan LogLine, 256)
			done = func() { close(lines) }
			sources = append(sources, lines)
		}
		reading.Go(func() {
			defer done()
			errs[i] = d.readLines(ctx, pod, app, o, lines)
		})
	}
	if o.Follow {
		sources = []chan LogLine{all}
		go func() {
			reading.Wait()
			close(all)
		}()
	}
	return sources, func() error {
		reading.Wait()
		return errors.Join(errs...)
	}
}

// readLines sends the lines of an app's log. It ends without an error when ctx ends.
func (d *Daemon) readLines(ctx context.Context, pod *pods.Pod, app string, o LogOptions, to chan<- LogLine) error {
	stdout := &lineSender{ctx: ctx, app: app, stream: "stdout", to: to}
	stderr := &lineSender{ctx: ctx, app: app, stream: "stderr", to: to}
	err := d.Logs(ctx, pod, app, o, stdout, stderr)
	err = errors.Join(err, stdout.flush(), stderr.flush())
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// mergeLines calls each with the lines of all sources, the earliest first. Each source is in the order of time.
func mergeLines(sources []chan LogLine, each func(LogLine) error) error {
	heads := make([]*LogLine, len(sources))
	take := func(i int) {
		heads[i] = nil
		if line, ok := <-sources[i]; ok {
			heads[i] = &line
		}
	}
	for i := range sources {
		take(i)
	}
	for {
		first := -1
		for i, head := range heads {
			if head != nil && (first < 0 || head.Time.Before(heads[first].Time)) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		if err := each(*heads[first]); err != nil {
			return err
		}
		take(first)
	}
}

// maxPart is the maximum size of a part of a line, in bytes.
const maxPart = 64 << 10

// lineSender sends the lines that are written to it with their times, a long line in parts of whole characters.
type lineSender struct {
	ctx         context.Context
	app, stream string
	to          chan<- LogLine
	rest        []byte  // of a line, not sent yet
	line        LogLine // that has begun, with More
}

// Write implements io.Writer.
func (l *lineSender) Write(data []byte) (int, error) {
	for line := range bytes.Lines(data) {
		l.rest = append(l.rest, line...)
		text, whole := bytes.CutSuffix(l.rest, []byte("\n"))
		for len(text) > maxPart {
			size := wholeRunes(text[:maxPart])
			if err := l.send(text[:size], true, false); err != nil {
				return 0, err
			}
			text = text[size:]
		}
		if !whole {
			l.rest = slices.Clone(text)
			continue
		}
		if err := l.send(text, false, true); err != nil {
			return 0, err
		}
		l.rest = nil
	}
	return len(data), nil
}

// flush sends a last line that has no newline.
func (l *lineSender) flush() error {
	if len(l.rest) == 0 && !l.line.More {
		return nil
	}
	last := l.rest
	l.rest = nil
	return l.send(last, false, false)
}

func (l *lineSender) send(text []byte, more, whole bool) error {
	line := LogLine{
		App: l.app, Stream: l.stream, Time: l.line.Time, Stamp: l.line.Stamp, Text: string(text),
		First: !l.line.More, More: more, Whole: whole,
	}
	if line.First {
		var err error
		line.Stamp, line.Text, _ = strings.Cut(line.Text, " ")
		if line.Time, err = time.Parse(time.RFC3339Nano, line.Stamp); err != nil {
			line.Stamp, line.Text = "", string(text)
		}
	}
	l.line = line
	select {
	case l.to <- line:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
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
