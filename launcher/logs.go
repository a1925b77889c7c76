package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"kurma.io/stager/callins"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// logsOptions is the command line of `logs`.
type logsOptions struct {
	follow, timestamps  bool
	tail, since, stream string
}

// logsCommand is `logs`.
func logsCommand(c *cli) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:               "logs POD [APP]",
		Short:             "show the output of an app",
		ValidArgsFunction: c.completePods(1, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.logs(cmd.Context(), args, o) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "wait for more output, until the app has ended")
	flags.BoolVarP(&o.timestamps, "timestamps", "t", false, "print the time before each line")
	flags.FuncP("tail", "n", "show the last `N` lines", func(text string) error {
		if n, err := strconv.Atoi(text); err != nil || n < 0 {
			return errors.New("want a number of lines")
		}
		o.tail = text
		return nil
	})
	flags.Func("since", "show lines since `TIME`, RFC 3339, or for the last DURATION, such as 1h30m", func(text string) error {
		o.since = text
		_, err := parseTime(text, time.Now())
		return err
	})
	flags.Func("stream", "show only `stdout|stderr`", func(text string) error {
		if text != "stdout" && text != "stderr" {
			return errors.New("want stdout or stderr")
		}
		o.stream = text
		return nil
	})
	return cmd
}

// parseTime reads a time in RFC 3339, or a duration back from now.
func parseTime(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, errors.New(`want an RFC 3339 time or a duration such as "1h30m"`)
	}
	return now.Add(-d), nil
}

// logs shows the output of an app. The options are the call-in's and are passed to it. The launcher
// itself reads the logs of a pod that has exited, until gc deletes them.
func (c *cli) logs(ctx context.Context, args []string, o logsOptions) error {
	pod, rest, err := c.findPod("logs", args)
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
	if pod.State.Phase == pods.Exited {
		// A write to a pipe that its reader does not read cannot be cancelled, and there
		// is nothing to clean up: a signal may end the process.
		signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	}
	var options []string
	if o.follow && pod.State.Phase != pods.Exited { // there will be no more output
		options = append(options, "--follow")
	}
	if o.timestamps || c.json {
		options = append(options, "--timestamps")
	}
	for _, option := range [][2]string{{"--tail", o.tail}, {"--since", o.since}, {"--stream", o.stream}} {
		if option[1] != "" {
			options = append(options, option[0], option[1])
		}
	}
	options = append(options, a.Name)
	switch {
	case c.json:
		return c.logsJSON(ctx, pod, options, a.Name)
	case pod.State.Phase == pods.Exited:
		return readKept(ctx, pod, options, c.stdout, c.stderr)
	}
	return pod.Become("logs", options...)
}

// readKept writes the output of an app of a pod that has exited, as the call-in does.
func readKept(ctx context.Context, pod *pods.Pod, options []string, stdout, stderr io.Writer) error {
	dir, err := pod.AppLogs()
	if err != nil {
		return err
	}
	return callins.Logs(ctx, dir, options, stdout, stderr)
}

// readLog writes the app's output to two descriptors.
func (c *cli) readLog(ctx context.Context, pod *pods.Pod, options []string, stdout, stderr *os.File) error {
	if pod.State.Phase == pods.Exited {
		return readKept(ctx, pod, options, stdout, stderr)
	}
	code, err := pod.Call([3]*os.File{c.stdin, stdout, stderr}, nil, "logs", options...)
	if err == nil && code != 0 {
		err = exitError{code}
	}
	return err
}
