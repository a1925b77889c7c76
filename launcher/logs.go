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

// runLogs is `logs`. The options are the call-in's and are passed to it. The launcher
// itself reads the logs of a pod that has exited, until gc deletes them.
func runLogs(ctx context.Context, c *cli, args []string) error {
	var follow, timestamps bool
	var tail, since, stream string
	rest, err := c.parse("logs", args, func(f *flag.FlagSet) {
		f.BoolVar(&follow, "follow", false, "wait for more output")
		f.BoolVar(&timestamps, "timestamps", false, "print the time before each line")
		f.StringVar(&tail, "tail", "", "show the last `N` lines")
		f.StringVar(&since, "since", "", "show lines since `TIME`, or for the last DURATION")
		f.StringVar(&stream, "stream", "", "show only stdout or stderr")
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
		// A write to a pipe that its reader does not read cannot be cancelled, and there
		// is nothing to clean up: a signal may end the process.
		signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	}
	var options []string
	if follow && pod.State.Phase != pods.Exited { // there will be no more output
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
