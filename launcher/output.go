package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/callins"
	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// errNoLog says that the stager keeps no log where the launcher can read it.
var errNoLog = errors.New("its stager keeps no log here")

// errNoLogs says that no app of a pod that has ended has a log.
var errNoLogs = errors.New("has ended and has no logs")

// lookForLog is how often openLog looks for the log of a pod that starts.
const lookForLog = 5 * time.Millisecond

// openLog opens the folder with the logs of the pod's apps. With follow it waits until the
// app has a log, or the pod has ended. errNoLog means that only the stager's own call-in, if
// anything, has the log.
func openLog(ctx context.Context, pod *pods.Pod, app string, follow bool) (*os.File, error) {
	for {
		if err := pod.Refresh(); err != nil {
			return nil, err
		}
		logs, err := pod.AppLogs()
		if err == nil && (hasLog(logs, app) || pod.Ended()) {
			return logs, nil
		}
		if err == nil {
			_ = logs.Close()
		}
		if pod.Ended() && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("pod %q %w", pod.Plan.Name, errNoLogs)
		}
		if pod.Ended() {
			return nil, err
		}
		if !follow || pod.State.Phase != pods.Starting || pod.Plan.LogDir == "" {
			return nil, errNoLog
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lookForLog):
		}
	}
}

// hasLog reports whether the app has a log file. From then on a follower of the log knows
// whether it has a writer.
func hasLog(logs *os.File, app string) bool {
	entries, err := os.ReadDir(filepath.Join(logPath(logs), app))
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".log") })
}

// logPath is a path of the open folder that stays the same when the folder is moved.
func logPath(logs *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", logs.Fd()) }

// readLog writes an app's output to two streams; options are those of the call-in logs. It reads
// the log itself, to its last byte also if the pod ends meanwhile. It returns errNoLog if
// it cannot, see openLog and stillWritten.
func (c *cli) readLog(ctx context.Context, pod *pods.Pod, app string, options []string, stdout, stderr io.Writer) error {
	follow := slices.Contains(options, "--follow")
	logs, err := openLog(ctx, pod, app, follow)
	if err != nil {
		return err
	}
	defer logs.Close()
	if follow && !isHeld(logs, app) {
		written, err := c.stillWritten(ctx, pod, app)
		if err != nil {
			return err
		}
		if written {
			return errNoLog
		}
		// There will be no more output, and perhaps there never was any.
		options = slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "--follow" })
	}
	return callins.Logs(ctx, logPath(logs), append(slices.Clone(options), app), stdout, stderr)
}

// stillWritten reports whether an app whose log has no lock that is held may write to it: a stager that
// writes in another machine, such as a virtual one, has its locks there. Only its call-in knows
// when such a log ends.
func (c *cli) stillWritten(ctx context.Context, pod *pods.Pod, app string) (bool, error) {
	if pod.Ended() {
		return false, nil
	}
	data, err := c.statusDocument(ctx, pod)
	if errors.Is(err, pods.ErrNotFound) {
		return false, nil // it has ended and is deleted
	}
	if err != nil {
		return false, err
	}
	apps, err := readStatus(pod, data)
	return !apps[app].Exited, err
}

// isHeld reports whether the log's writer holds its lock, as an app's does until the app has
// ended for good.
func isHeld(logs *os.File, app string) bool {
	file, err := os.Open(filepath.Join(logPath(logs), app, "lock"))
	if err != nil {
		return false
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}

// askForLog has the stager's call-in read the log.
func (c *cli) askForLog(pod *pods.Pod, args []string, stdout, stderr io.Writer) error {
	code, err := c.callInto(pod, stdout, stderr, "logs", args...)
	if err == nil && code != 0 {
		err = exitError{code}
	}
	return err
}

// lastLines returns the last lines of each app's output, for a pod that failed to start.
func lastLines(pod *pods.Pod) string {
	const enough = "10"
	var all strings.Builder
	for _, app := range appNames(pod) {
		var text bytes.Buffer
		if err := new(cli).readLog(context.Background(), pod, app, []string{"--tail", enough}, &text, &text); err != nil || text.Len() == 0 {
			continue
		}
		fmt.Fprintf(&all, "launcher: app %q has written:\n", app)
		for line := range strings.SplitSeq(strings.TrimSuffix(text.String(), "\n"), "\n") {
			fmt.Fprintf(&all, "  %s\n", printable(line))
		}
	}
	return all.String()
}

// labeller writes the output of several apps to one place: whole lines, with the app's name
// before each if that is a terminal.
type labeller struct {
	out     io.Writer
	writing *sync.Mutex // held for one line; all streams of all apps share it
	label   string
	rest    []byte // a line without its end
}

// Write implements io.Writer.
func (l *labeller) Write(data []byte) (int, error) {
	text := append(l.rest, data...)
	end := bytes.LastIndexByte(text, '\n') + 1
	l.rest = slices.Clone(text[end:])
	if end == 0 {
		return len(data), nil
	}
	return len(data), l.print(text[:end])
}

func (l *labeller) print(lines []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	var b bytes.Buffer
	for line := range bytes.Lines(lines) {
		b.WriteString(l.label)
		b.Write(line)
	}
	_, err := l.out.Write(b.Bytes())
	return err
}

// flush writes a last line that has no newline, with one.
func (l *labeller) flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	line := append(l.rest, '\n')
	l.rest = nil
	return l.print(line)
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if w, ok := stream.(*watched); ok {
		stream = w.Writer
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// appLabel is what stands before an app's lines on a terminal: the name, padded to width, in a
// colour that is always the app's unless the user wants none (https://no-color.org).
func appLabel(app string, width int) string {
	text := fmt.Sprintf("%-*s | ", width, app)
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	colours := []int{32, 33, 34, 35, 36, 92, 93, 94, 95, 96}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(app)) // a hash takes every byte
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colours[sum.Sum32()%uint32(len(colours))], text)
}

// appStreams returns where the output of one of the apps goes: to the caller's streams; if there
// are several apps and one of the streams is a terminal, line by line and labelled there.
// flush ends a last line.
func (c *cli) appStreams(writing *sync.Mutex, apps []string, app string) (stdout, stderr io.Writer, flush func() error) {
	if len(apps) < 2 {
		stdout, flushOut := c.escape(c.stdout, c.stdout)
		stderr, flushErr := c.escape(c.stderr, c.stderr)
		return stdout, stderr, func() error { return errors.Join(flushOut(), flushErr()) }
	}
	width := 0
	for _, name := range apps {
		width = max(width, len(name))
	}
	streams := [2]*labeller{{out: c.stdout, writing: writing}, {out: c.stderr, writing: writing}}
	for _, s := range streams {
		if isTerminal(s.out) {
			s.label = appLabel(app, width)
		}
	}
	stdout, flushOut := c.escape(streams[0], c.stdout)
	stderr, flushErr := c.escape(streams[1], c.stderr)
	return stdout, stderr, func() error {
		return errors.Join(flushOut(), streams[0].flush(), flushErr(), streams[1].flush())
	}
}

// escape returns a writer to to, which writes to a stream of the caller: one that escapes control characters if that
// stream is a terminal and c.escapes says so. flush ends a last character.
func (c *cli) escape(to, stream io.Writer) (escaped io.Writer, flush func() error) {
	if !c.escapes || !isTerminal(stream) {
		return to, func() error { return nil }
	}
	w := plaintext.NewWriter(to)
	return w, w.Flush
}
