package main

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"

	"kurma.io/stager/callins" //nolint:depguard // a pod that has ended has no call-ins: the launcher reads its logs with the code of the call-in
	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
)

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
	if pod.State.Phase == pods.Exited {
		// There is nothing to clear away, and a write to one who does not read cannot
		// be cancelled.
		signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
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
		return readKept(ctx, pod, options, c.stdout, c.stderr)
	}
	return pod.Become("logs", options...)
}

// readKept writes what the app of a pod that has exited wrote, as the call-in does.
func readKept(ctx context.Context, pod *pods.Pod, options []string, stdout, stderr io.Writer) error {
	dir, err := pod.AppLogs()
	if err != nil {
		return err
	}
	return callins.Logs(ctx, dir, options, stdout, stderr)
}

// readLog writes what the app wrote to two descriptors.
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
