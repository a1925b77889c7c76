package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// runHere runs a pod in the foreground: this process is its monitor, shows the output of its
// apps, to the last byte, and returns the pod's exit code. The pod is stopped if ctx ends, or the
// output cannot be written. It calls started when the pod is up.
func (c *cli) runHere(ctx context.Context, launch *daemon.Launch, o runOptions, started func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var output sync.WaitGroup
	exit, err := launch.Run(ctx, func() error {
		pod := launch.Pod()
		started()
		if c.json {
			if err := c.printStarted(pod); err != nil {
				return err
			}
		}
		c.showWarnings(pod)
		c.notify(systemd.SdNotifyReady + "\nSTATUS=Pod " + pod.Plan.UUID)
		c.showOutput(ctx, pod, &output, cancel)
		return nil
	})
	// The pod has ended: a signal may end the launcher in what is left to do.
	letSignalsEnd()
	if err == nil || errors.Is(err, pods.ErrConnected) { // after another error the output may have no end
		output.Wait()
	}
	if err != nil {
		return err
	}
	return c.ended(ctx, launch.Pod(), &exit.Code, o.remove)
}

// ended deletes a pod that has ended, if remove says so and no restart will, and returns the launcher's exit status as
// an error: SIGINT's if that has ended the pod, else the pod's code, nil if it is not known.
func (c *cli) ended(ctx context.Context, pod *pods.Pod, code *int, remove bool) error {
	c.reportFailedStager(pod, remove)
	if remove {
		err := c.daemon.RemovePod(context.WithoutCancel(ctx), pod, false)
		if err != nil && !errors.Is(err, pods.ErrHeld) {
			return err
		}
	}
	var interrupted interruption
	cause := context.Cause(ctx)
	switch bySignal := errors.As(cause, &interrupted); {
	case interrupted.signal == unix.SIGINT:
		return exitError{128 + int(unix.SIGINT)}
	case cause != nil && !bySignal:
		return cause
	case code != nil:
		return statusOf(*code, nil)
	case bySignal:
		return nil
	}
	return unknownCode(pod)
}

// reportFailedStager prints why a pod that has ended has an exit code that is not its apps'. deleted is whether the
// pod's logs will be.
func (c *cli) reportFailedStager(pod *pods.Pod, deleted bool) {
	how := pod.StagerFailed()
	if how == "" {
		return
	}
	if !deleted {
		how += "; launcher logs --stager " + pod.Plan.Name + " shows its messages"
	}
	c.say(fmt.Sprintf("pod %q: %s", pod.Plan.Name, how))
}

// showOutput begins to show the output of the pod's apps. shown is done when all has been written;
// failed is called if it cannot be.
func (c *cli) showOutput(ctx context.Context, pod *pods.Pod, shown *sync.WaitGroup, failed func(error)) {
	if pod.Plan.LogDir == "" {
		c.warn(fmt.Sprintf("the output is not shown: the stager image has no annotation %q", names.LogDirAnnotation))
		return
	}
	own := *pod // the caller reads the pod's state again
	here := *c
	here.stdout, here.stderr = &watched{c.stdout, failed}, &watched{c.stderr, failed}
	show := here.showLogs
	if c.isInJournal() {
		show = here.sendLogs
	}
	shown.Go(func() {
		// A stop of the pod ends the output by the apps' end.
		ctx := context.WithoutCancel(ctx)
		err := show(ctx, &own, daemon.AppNames(&own), logsOptions{LogOptions: daemon.LogOptions{Follow: true}})
		if err != nil && !errors.Is(err, daemon.ErrNoLogs) {
			failed(fmt.Errorf("show the output of the pod: %w", err))
		}
	})
}

// watched is a stream that reports its errors: callins.Logs does not return a reader's
// end (EPIPE).
type watched struct {
	io.Writer
	failed func(error)
}

// Write implements io.Writer.
func (w *watched) Write(data []byte) (int, error) {
	n, err := w.Writer.Write(data)
	if err != nil {
		w.failed(fmt.Errorf("show the output of the pod: %w", err))
	}
	return n, err
}
