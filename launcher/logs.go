package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// logsOptions is the command line of `logs`.
type logsOptions struct {
	daemon.LogOptions
	stager, raw bool
	until       time.Time // zero for no end
}

// logsCommand is `logs`.
func logsCommand(c *cli) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs POD [APP]",
		Short: "show the output of a pod's apps",
		Long: `logs shows the output of an app, or of all apps of the pod in chronological order. Each line of several
apps begins with the app's name, and ends with a newline. On a terminal, control characters but newline and tab become
\xNN, unless --raw passes them on; a file or pipe gets them as they were written. --follow ends when the apps have
ended, with their last byte.`,
		ValidArgsFunction: c.completePods(1, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return c.logs(cmd.Context(), args, o)
		},
	}
	o.declare(cmd.Flags())
	return cmd
}

func (o *logsOptions) declare(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.Follow, "follow", "f", false, "wait for more output, until the apps have ended")
	flags.BoolVarP(&o.Timestamps, "timestamps", "t", false, "print the time before each line, in UTC")
	flags.BoolVar(&o.raw, "raw", false, "pass control characters to a terminal as they are")
	flags.BoolVar(&o.stager, "stager", false, "show the stager's own log")
	flags.FuncP("tail", "n", "show the last `N` lines of each app", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return errors.New("want a number of lines")
		}
		o.Tail = &n
		return nil
	})
	flags.Func("since", "show lines since `TIME`, RFC 3339, or for the last DURATION, such as 1h30m", timeFlag(&o.Since))
	flags.Func("until", "show lines before `TIME`, or before a DURATION ago", timeFlag(&o.until))
	flags.Func("stream", "show only `stdout|stderr`", func(text string) error {
		if text != "stdout" && text != "stderr" {
			return errors.New("want stdout or stderr")
		}
		o.Stream = text
		return nil
	})
}

// timeFlag returns a flag's function that reads a time.
func timeFlag(value *time.Time) func(string) error {
	return func(text string) (err error) {
		*value, err = parseTime(text, time.Now())
		return err
	}
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

// check refuses options that exclude each other.
func (o *logsOptions) check() error {
	if o.Follow && !o.until.IsZero() {
		return usageError{"logs: --follow has no --until"}
	}
	if o.stager && (o.Timestamps || o.Tail != nil || o.Stream != "" || !o.Since.IsZero() || !o.until.IsZero()) {
		return usageError{"logs: --stager shows the whole log; want no other option than --follow"}
	}
	return nil
}

// logs shows the output of apps.
func (c *cli) logs(ctx context.Context, args []string, o logsOptions) error {
	pod, rest, err := c.findPod("logs", args)
	if err != nil {
		return err
	}
	if len(rest) > 1 || o.stager && len(rest) > 0 {
		return usageError{"logs: want POD [APP], or --stager POD"}
	}
	apps, err := appNames(pod, rest)
	if err != nil {
		return err
	}
	// A write to a pipe that its reader does not read cannot be cancelled, and there
	// is nothing to clean up: a signal may end the process.
	letSignalsEnd()
	c.escapes = !o.raw && !c.json
	if o.stager {
		return c.stagerLog(ctx, pod, o.Follow)
	}
	return c.showLogs(ctx, pod, apps, o)
}
