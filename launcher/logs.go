package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// logsOptions is the command line of `logs`.
type logsOptions struct {
	follow, timestamps, stager, raw bool
	tail, since, stream             string
	until                           time.Time // zero for no end
}

// logsCommand is `logs`.
func logsCommand(c *cli) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs POD [APP]",
		Short: "show the output of a pod's apps",
		Long: `logs shows the output of an app, or of all apps of the pod in the order of time. On a terminal, lines of
several apps begin with the app's name, and control characters but newline and tab become \xNN, unless --raw passes
them on; a file or pipe gets every byte as it was written. --follow ends when the apps have ended, with their last byte.`,
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
	flags.BoolVarP(&o.follow, "follow", "f", false, "wait for more output, until the apps have ended")
	flags.BoolVarP(&o.timestamps, "timestamps", "t", false, "print the time before each line, in UTC")
	flags.BoolVar(&o.raw, "raw", false, "pass control characters to a terminal as they are")
	flags.BoolVar(&o.stager, "stager", false, "show the stager's own log")
	flags.FuncP("tail", "n", "show the last `N` lines of each app", func(text string) error {
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
	flags.Func("until", "show lines before `TIME`, or before a DURATION ago", func(text string) (err error) {
		o.until, err = parseTime(text, time.Now())
		return err
	})
	flags.Func("stream", "show only `stdout|stderr`", func(text string) error {
		if text != "stdout" && text != "stderr" {
			return errors.New("want stdout or stderr")
		}
		o.stream = text
		return nil
	})
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
	if o.follow && !o.until.IsZero() {
		return usageError{"logs: --follow has no --until"}
	}
	if o.stager && (o.timestamps || o.tail+o.since+o.stream != "" || !o.until.IsZero()) {
		return usageError{"logs: --stager shows the whole log; want no other option than --follow"}
	}
	return nil
}

// callIn returns the options for the call-in logs.
func (o *logsOptions) callIn(timestamps bool) []string {
	var options []string
	if o.follow {
		options = append(options, "--follow")
	}
	if timestamps {
		options = append(options, "--timestamps")
	}
	for _, option := range [][2]string{{"--tail", o.tail}, {"--since", o.since}, {"--stream", o.stream}} {
		if option[1] != "" {
			options = append(options, option[0], option[1])
		}
	}
	return options
}

// logs shows the output of apps. The launcher reads the log itself, because the pod may end
// meanwhile and its stager with it; only if it cannot, it executes the call-in, whose options are the same.
func (c *cli) logs(ctx context.Context, args []string, o logsOptions) error {
	pod, rest, err := c.findPod("logs", args)
	if err != nil {
		return err
	}
	if len(rest) > 1 || o.stager && len(rest) > 0 {
		return usageError{"logs: want POD [APP], or --stager POD"}
	}
	apps := appNames(pod)
	if len(rest) > 0 {
		a, err := app(pod, rest)
		if err != nil {
			return err
		}
		apps = []string{a.Name}
	}
	// A write to a pipe that its reader does not read cannot be cancelled, and there
	// is nothing to clean up: a signal may end the process.
	signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	c.escapes = !o.raw && !c.json
	switch {
	case o.stager:
		return c.stagerLog(ctx, pod, o.follow)
	case o.follow && len(apps) > 1:
		return c.followAll(ctx, pod, apps, o)
	case len(apps) > 1 || !o.until.IsZero():
		return c.mergeLogs(ctx, pod, apps, o)
	case c.json:
		return c.logsJSON(ctx, pod, o.callIn(true), apps[0], new(sync.Mutex))
	}
	return c.appLog(ctx, pod, apps[0], o.callIn(o.timestamps))
}

// appLog shows the output of one app.
func (c *cli) appLog(ctx context.Context, pod *pods.Pod, app string, options []string) error {
	stdout, stderr, flush := c.appStreams(new(sync.Mutex), []string{app}, app)
	err := c.readLog(ctx, pod, app, options, stdout, stderr)
	switch asIs := stdout == c.stdout && stderr == c.stderr; {
	case !errors.Is(err, errNoLog):
	case asIs:
		return pod.Become("logs", append(options, app)...)
	default:
		err = c.askForLog(pod, append(options, app), stdout, stderr)
	}
	return errors.Join(err, flush())
}

// followAll follows several apps at the same time.
func (c *cli) followAll(ctx context.Context, pod *pods.Pod, apps []string, o logsOptions) error {
	var following sync.WaitGroup
	var writing sync.Mutex
	errs := make([]error, len(apps))
	for i, name := range apps {
		own := *pod
		following.Go(func() { errs[i] = c.showApp(ctx, &own, name, o.callIn(o.timestamps || c.json), &writing) })
	}
	following.Wait()
	return errors.Join(errs...)
}

// readAppLog writes the app's output to two descriptors.
func (c *cli) readAppLog(ctx context.Context, pod *pods.Pod, options []string, app string, stdout, stderr *os.File) error {
	err := c.readLog(ctx, pod, app, options, stdout, stderr)
	if !errors.Is(err, errNoLog) {
		return err
	}
	return c.askForOutput(ctx, pod, app, options, stdout, stderr)
}
