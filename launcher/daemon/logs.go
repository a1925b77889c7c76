package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kurma.io/stager/callins"
	"kurma.io/stager/crilog"
	"kurma.io/stager/launcher/pods"
)

// LogOptions says which output of an app Logs writes. The zero value is all that there is so far.
type LogOptions struct {
	Follow     bool      // go on until the app has ended for good
	Timestamps bool      // begin each line with its time, in RFC 3339, and a space
	Tail       *int      // only the last lines of both streams together; nil for all
	Since      time.Time // only lines since then; zero for all
	Stream     string    // "stdout" or "stderr"; "" for both
}

// callIn returns the options as the stager's call-in logs has them.
func (o LogOptions) callIn() []string {
	var options []string
	if o.Follow {
		options = append(options, "--follow")
	}
	if o.Timestamps {
		options = append(options, "--timestamps")
	}
	if o.Tail != nil {
		options = append(options, "--tail", strconv.Itoa(*o.Tail))
	}
	if !o.Since.IsZero() {
		options = append(options, "--since", o.Since.Format(time.RFC3339Nano))
	}
	if o.Stream != "" {
		options = append(options, "--stream", o.Stream)
	}
	return options
}

// Logs writes an app's output to two streams, byte for byte, also while the pod ends. The daemon reads the log
// itself; it asks the stager's call-in only for a log that is kept elsewhere. A reader that closes the output early
// (EPIPE) is not an error, and nor is the end of ctx while the log is followed. A pod that has ended without a log is
// ErrNoLogs.
func (d *Daemon) Logs(ctx context.Context, pod *pods.Pod, app string, o LogOptions, stdout, stderr io.Writer) error {
	own := *pod // the state changes
	err := d.readLog(ctx, &own, app, o, stdout, stderr)
	if errors.Is(err, errNoLog) {
		return d.askForLog(ctx, &own, app, o, stdout, stderr)
	}
	return err
}

// readLog reads the log itself, to its last byte also if the pod ends meanwhile. It returns errNoLog if
// it cannot, see openLog and stillWritten.
func (d *Daemon) readLog(ctx context.Context, pod *pods.Pod, app string, o LogOptions, stdout, stderr io.Writer) error {
	logs, err := openLog(ctx, pod, app, o.Follow)
	if err != nil {
		return err
	}
	defer logs.Close()
	held, err := crilog.IsHeld(filepath.Join(logPath(logs), app))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // not the lock of an app that has not been started
		return err
	}
	if o.Follow && !held {
		written, err := d.stillWritten(ctx, pod, app)
		if err != nil {
			return err
		}
		if written {
			return errNoLog
		}
		o.Follow = false // there will be no more output, and perhaps there never was any
	}
	read := crilog.ReadOptions{Follow: o.Follow, Tail: -1, Since: o.Since}
	if o.Tail != nil {
		read.Tail = *o.Tail
	}
	for _, stream := range []crilog.Stream{crilog.Stdout, crilog.Stderr} {
		if o.Stream == stream.String() {
			read.Stream = stream
		}
	}
	own := callins.LogOptions{App: app, Timestamps: o.Timestamps, Read: read}
	return callins.CopyLog(ctx, logPath(logs), own, stdout, stderr)
}

// askForLog has the stager's call-in read the log. The pod may end before the call-in is
// executed: then the log is read.
func (d *Daemon) askForLog(ctx context.Context, pod *pods.Pod, app string, o LogOptions,
	stdout, stderr io.Writer,
) error {
	code, err := callInto(ctx, pod, stdout, stderr, "logs", append(o.callIn(), app)...)
	if err == nil && code != 0 {
		err = &CallInError{Code: code}
	}
	if err == nil || !o.Follow || !pod.Ends(ctx, endingTime) {
		return err
	}
	if failed := (*CallInError)(nil); errors.As(err, &failed) {
		return nil // the call-in has ended with its pod
	}
	switch err := pod.AwaitEnd(ctx); {
	case errors.Is(err, pods.ErrNotFound) || ctx.Err() != nil:
		return nil // the pod is deleted
	case err != nil:
		return err
	}
	return d.readLog(ctx, pod, app, o, stdout, stderr)
}

// stillWritten reports whether an app may write to its log although no process holds the log's lock: a stager that
// writes in another machine, such as a virtual one, has its locks there. Only its call-in knows
// when such a log ends.
func (d *Daemon) stillWritten(ctx context.Context, pod *pods.Pod, app string) (bool, error) {
	if pod.Ended() {
		return false, nil
	}
	status, err := d.Status(ctx, pod)
	if errors.Is(err, pods.ErrNotFound) {
		return false, nil // it has ended and is deleted
	}
	return !status.Apps[app].Exited, err
}

// lastLines returns the last lines of each app's output, for a pod that failed to start.
func lastLines(pod *pods.Pod) []pods.AppOutput {
	enough := 10
	var all []pods.AppOutput
	for _, app := range AppNames(pod) {
		var text bytes.Buffer
		own := LogOptions{Tail: &enough, Since: pod.State.Created} // without the logs of the pod that it restarts
		err := new(Daemon).readLog(context.Background(), pod, app, own, &text, &text)
		if err == nil && text.Len() > 0 {
			all = append(all, pods.AppOutput{App: app, Lines: strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")})
		}
	}
	return all
}
