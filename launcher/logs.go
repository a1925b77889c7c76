package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/callins" //nolint:depguard // of a pod that has ended nobody is left to call: its logs are read as the call-in does it
	"kurma.io/stager/launcher/pods"
)

// logLine is a line of `logs --json`.
type logLine struct {
	Time    string `json:"time"` // RFC 3339, when the line began
	Stream  string `json:"stream"`
	App     string `json:"app"`
	Message string `json:"message"` // without the newline; what is not UTF-8 is U+FFFD
}

// runLogs is `logs`: the options are the call-in's own, and go to it. The logs of a
// pod that has exited are read until gc takes them.
func runLogs(ctx context.Context, c *cli, args []string) error {
	var follow, timestamps bool
	var tail, since, stream string
	rest, err := c.parse("logs", args, func(f *flag.FlagSet) {
		f.BoolVar(&follow, "follow", false, "go on as the app writes")
		f.BoolVar(&timestamps, "timestamps", false, "begin each line with its time")
		f.StringVar(&tail, "tail", "", "the last `N` lines only")
		f.StringVar(&since, "since", "", "from a `TIME` or DURATION ago on")
		f.StringVar(&stream, "stream", "", "stdout or stderr only")
	})
	if err != nil {
		return err
	}
	pod, rest, err := c.findPod("logs", rest)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return usageError{"logs: want POD [APP]"}
	}
	a, err := app(pod, rest)
	if err != nil {
		return err
	}
	var options []string
	if follow && pod.State.Phase != pods.Exited { // nobody writes any more
		options = append(options, "--follow")
	}
	if timestamps || c.json {
		options = append(options, "--timestamps")
	}
	for _, o := range [][2]string{{"--tail", tail}, {"--since", since}, {"--stream", stream}} {
		if o[1] != "" {
			options = append(options, o[0], o[1])
		}
	}
	options = append(options, a.Name)
	switch {
	case c.json:
		return c.logsJSON(ctx, pod, options, a.Name)
	case pod.State.Phase == pods.Exited:
		return callins.Logs(ctx, pod.AppLogs(), options, c.stdout, c.stderr)
	}
	return pod.Become("logs", options...)
}

// logsJSON reads the app's log with times and prints each line as an object. The order
// of lines of one stream is the log's; those of two streams that were written at
// the same time may change places.
func (c *cli) logsJSON(ctx context.Context, pod *pods.Pod, options []string, app string) error {
	var printing sync.Mutex
	printer := func(stream string) func(string) error {
		return func(text string) error {
			printing.Lock()
			defer printing.Unlock()
			return c.printLogLine(text, stream, app)
		}
	}
	stdout, outDone, err := eachLine(printer("stdout"))
	if err != nil {
		return err
	}
	stderr, errDone, err := eachLine(printer("stderr"))
	if err != nil {
		return errors.Join(err, stdout.Close(), <-outDone)
	}
	err = c.readLog(ctx, pod, options, stdout, stderr)
	_, _ = stdout.Close(), stderr.Close()
	return errors.Join(err, <-outDone, <-errDone)
}

// printLogLine prints a line that begins with its time. One that does not is the
// call-in's own word.
func (c *cli) printLogLine(text, stream, app string) error {
	when, message, _ := strings.Cut(text, " ")
	if _, err := time.Parse(time.RFC3339Nano, when); err != nil {
		_, err := fmt.Fprintln(c.stderr, text)
		return err
	}
	return c.printJSON(logLine{Time: when, Stream: stream, App: app, Message: message})
}

// readLog writes what the app wrote to two descriptors.
func (c *cli) readLog(ctx context.Context, pod *pods.Pod, options []string, stdout, stderr *os.File) error {
	if pod.State.Phase == pods.Exited {
		return callins.Logs(ctx, pod.AppLogs(), options, stdout, stderr)
	}
	code, err := pod.Call([3]*os.File{c.stdin, stdout, stderr}, nil, "logs", options...)
	if err == nil && code != 0 {
		err = exitError{code}
	}
	return err
}

// eachLine gives the write end of a pipe, every line of which is given to do.
// When the write end is closed, or do fails, done has the first error.
func eachLine(do func(text string) error) (write *os.File, done <-chan error, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := copyLines(read, do)
		_ = read.Close() // a writer that goes on hears of it
		ended <- err
	}()
	return write, ended, nil
}

func copyLines(from io.Reader, do func(text string) error) error {
	in := bufio.NewReader(from)
	for {
		text, readErr := in.ReadString('\n')
		if text != "" {
			if err := do(strings.TrimSuffix(text, "\n")); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}
