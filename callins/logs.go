package callins

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"kurma.io/stager/crilog"
)

const logsUsage = "usage: logs [--follow] [--tail N] [--since TIME|DURATION] [--timestamps] " +
	"[--stream stdout|stderr] APP"

// logWait is how long logs --follow waits for the log to be made.
const logWait = 2 * time.Second

// LogsFrom returns the call-in logs for the log folders in root. See Logs, whose
// errors it begins with "logs: ".
func LogsFrom(root string) CallIn {
	return func(ctx context.Context, s Streams, args []string) error {
		if err := Logs(ctx, root, args, s.Stdout, s.Stderr); err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		return nil
	}
}

// Logs is the call-in `logs [--follow] [--tail N] [--since TIME|DURATION]
// [--timestamps] [--stream stdout|stderr] APP`. TIME is RFC 3339, DURATION Go's ("90s", "1h30m"), back from now. It
// reads the folders in root itself, so it needs no supervisor.
func Logs(ctx context.Context, root string, args []string, stdout, stderr io.Writer) error {
	opts, err := parseLogs(args, time.Now())
	if err != nil {
		return err
	}
	return CopyLog(ctx, root, opts, stdout, stderr)
}

// LogOptions says which log CopyLog reads, and how.
type LogOptions struct {
	App        string
	Timestamps bool               // begin each line with its time, in RFC 3339, and a space
	Read       crilog.ReadOptions // but for Flush
}

// CopyLog writes what an app wrote to stdout and stderr, byte for byte. root is the folder with one log folder for each
// app. With Follow it goes on until the app has ended for good, the pod is gone, or ctx is done. None of these
// is an error, nor is a reader that closes the output early (EPIPE). An app without a log is an error that names it.
func CopyLog(ctx context.Context, root string, o LogOptions, stdout, stderr io.Writer) error {
	dir, err := logFolder(ctx, root, o)
	if err != nil {
		return err
	}
	out := newLogOutput(stdout, stderr, o.Timestamps)
	o.Read.Flush = out.flush
	err = crilog.Read(ctx, dir, o.Read, out.write)
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil
	case o.Read.Follow && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		err = out.flush()
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("read log of app %q: %w", o.App, err)
	}
	return nil
}

func parseLogs(args []string, now time.Time) (LogOptions, error) {
	o := LogOptions{Read: crilog.ReadOptions{Tail: -1}}
	flags := flag.NewFlagSet("logs", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.Read.Follow, "follow", false, "")
	flags.BoolVar(&o.Timestamps, "timestamps", false, "")
	flags.Func("tail", "", func(v string) (err error) {
		o.Read.Tail, err = parseTail(v)
		return err
	})
	flags.Func("since", "", func(v string) (err error) {
		o.Read.Since, err = parseSince(v, now)
		return err
	})
	flags.Func("stream", "", func(v string) (err error) {
		o.Read.Stream, err = parseStream(v)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("%w; %s", err, logsUsage)
	}
	if flags.NArg() != 1 {
		return o, fmt.Errorf("%d app names, want 1; %s", flags.NArg(), logsUsage)
	}
	o.App = flags.Arg(0)
	return o, nil
}

func parseTail(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, errors.New("want a number of lines")
	}
	return n, nil
}

func parseSince(v string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return time.Time{}, errors.New(`want an RFC 3339 time or a duration such as "1h30m"`)
	}
	return now.Add(-d), nil
}

func parseStream(v string) (crilog.Stream, error) {
	for _, s := range []crilog.Stream{crilog.Stdout, crilog.Stderr} {
		if v == s.String() {
			return s, nil
		}
	}
	return 0, errors.New("want stdout or stderr")
}

// logFolder returns the app's log folder. With --follow it waits a moment for the
// folder to be made.
func logFolder(ctx context.Context, root string, o LogOptions) (string, error) {
	unknown := fmt.Errorf("no log of app %q", o.App)
	if o.App == "." || !filepath.IsLocal(o.App) || filepath.Base(o.App) != o.App {
		return "", unknown
	}
	dir := filepath.Join(root, o.App)
	if o.Read.Follow {
		wait, cancel := context.WithTimeout(ctx, logWait)
		defer cancel()
		ctx = wait
	}
	for {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", fmt.Errorf("find log of app %q: %w", o.App, err)
		}
		if err == nil || !o.Read.Follow {
			return "", unknown
		}
		select {
		case <-ctx.Done():
			return "", unknown
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logOutput writes records to the streams that they came from.
type logOutput struct {
	streams    map[crilog.Stream]*logStream
	last       *logStream // the one that may have unwritten bytes
	timestamps bool
}

type logStream struct {
	*bufio.Writer
	inside bool // in the middle of a line
}

func newLogOutput(stdout, stderr io.Writer, timestamps bool) *logOutput {
	out := &logStream{Writer: bufio.NewWriterSize(stdout, 64<<10)}
	err := &logStream{Writer: bufio.NewWriterSize(stderr, 64<<10)}
	return &logOutput{
		streams:    map[crilog.Stream]*logStream{crilog.Stdout: out, crilog.Stderr: err},
		last:       out,
		timestamps: timestamps,
	}
}

// write is crilog.Read's callback. Errors of the buffers stay in them until the flush.
func (o *logOutput) write(e crilog.Entry) error {
	s := o.streams[e.Stream]
	if s != o.last {
		// On a terminal both streams appear in the order in which they were written.
		if err := o.flush(); err != nil {
			return err
		}
		o.last = s
	}
	if o.timestamps && !s.inside {
		// A bufio.Writer returns its error again from the next write.
		_, _ = s.Write(e.Time.AppendFormat(s.AvailableBuffer(), "2006-01-02T15:04:05.000000000Z07:00 "))
	}
	_, err := s.Write(e.Text)
	if !e.Partial && (!e.Ended || o.timestamps) { // without times, the output is the app's, byte for byte
		err = s.WriteByte('\n')
	}
	s.inside = e.Partial
	return err
}

func (o *logOutput) flush() error { return o.last.Flush() }
