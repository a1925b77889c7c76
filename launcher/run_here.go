package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"sync"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// runHere runs a pod in the foreground: this process is its monitor, shows the output of its
// apps, to the last byte, and returns the pod's exit code. The pod is stopped if ctx ends, or the
// output cannot be written. It calls started when the pod is up.
func (c *cli) runHere(ctx context.Context, store *pods.Store, pod *pods.Pod, o runOptions, started func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var output sync.WaitGroup
	exit, err := pod.Run(ctx, true, func() error {
		started()
		err := writeUUID(o.uuidFile, pod)
		if err == nil && c.json {
			err = c.printStarted(pod)
		}
		if err != nil {
			return err
		}
		c.showWarnings(pod)
		c.notify(daemon.SdNotifyReady + "\nSTATUS=Pod " + pod.Plan.UUID)
		return c.showOutput(ctx, store, pod.Plan.UUID, &output, cancel)
	})
	// The pod has ended: a signal may end the launcher in what is left to do.
	signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	if err == nil || errors.Is(err, pods.ErrConnected) { // after another error the output may have no end
		output.Wait()
	}
	if err != nil {
		return err
	}
	c.reportFailedStager(pod, o.remove)
	if o.remove {
		ended, err := store.Find(pod.Plan.UUID)
		if err == nil {
			err = store.Remove(context.WithoutCancel(ctx), ended, false)
		}
		if err != nil && !errors.Is(err, pods.ErrNotFound) {
			return err
		}
	}
	var interrupted interruption
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &interrupted):
		if interrupted.signal == unix.SIGINT {
			return exitError{128 + int(unix.SIGINT)}
		}
	case cause != nil:
		return cause
	}
	if exit.Code != 0 {
		return exitError{exit.Code}
	}
	return nil
}

// reportFailedStager prints why a pod that has ended has an exit code that is not its apps'. deleted is whether the pod's logs
// will be.
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
// failed is called if it cannot be. The readers have their own copy of the pod, because
// its monitor changes the other one.
func (c *cli) showOutput(ctx context.Context, store *pods.Store, uuid string, shown *sync.WaitGroup, failed func(error)) error {
	own, err := store.Find(uuid)
	if err != nil {
		return err
	}
	if own.Plan.LogDir == "" {
		c.warn(fmt.Sprintf("the output is not shown: the stager image has no annotation %q", names.LogDirAnnotation))
		return nil
	}
	here := *c
	here.stdout, here.stderr = &watched{c.stdout, failed}, &watched{c.stderr, failed}
	// A stop of the pod ends the output by the apps' end.
	ctx = context.WithoutCancel(ctx)
	var writing sync.Mutex
	for _, app := range appNames(own) {
		pod := *own
		shown.Go(func() {
			if err := here.showApp(ctx, &pod, app, here.followOptions(), &writing); err != nil && !errors.Is(err, errNoLogs) {
				failed(fmt.Errorf("show the output of app %q: %w", app, err))
			}
		})
	}
	return nil
}

// followOptions are those of the call-in logs for all output of an app.
func (c *cli) followOptions() []string {
	o := logsOptions{follow: true}
	return o.callIn(c.json)
}

// showApp shows an app's output as it is written; options are those of the call-in logs. Those for --json have
// timestamps.
func (c *cli) showApp(ctx context.Context, pod *pods.Pod, app string, options []string, writing *sync.Mutex) error {
	if c.json {
		return c.logsJSON(ctx, pod, options, app, writing)
	}
	stdout, stderr, flush := c.appStreams(writing, appNames(pod), app)
	err := c.readLog(ctx, pod, app, options, stdout, stderr)
	if errors.Is(err, errNoLog) {
		err = c.askForOutput(ctx, pod, app, options, stdout, stderr)
	}
	return errors.Join(err, flush())
}

// askForOutput has the stager's call-in follow the log. The pod may end before the call-in is
// executed: then the log is read.
func (c *cli) askForOutput(ctx context.Context, pod *pods.Pod, app string, options []string, stdout, stderr io.Writer) error {
	err := c.askForLog(pod, append(options, app), stdout, stderr)
	if err == nil || !pod.Ends(ctx, endingTime) {
		return err
	}
	if exit := (exitError{}); errors.As(err, &exit) {
		return nil // the call-in has ended with its pod
	}
	if pod.AwaitEnd(ctx) != nil {
		return nil // the pod is deleted
	}
	return c.readLog(ctx, pod, app, options, stdout, stderr)
}

// watched is a stream whose first error is reported: callins.Logs does not return a reader's
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
