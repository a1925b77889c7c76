package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
)

// runInteractive runs a pod of one app with the caller's stdin. The pod's monitor is a process of
// its own, so that the detach keys can leave the pod running. The output comes from the log, with
// every byte from the beginning; attach passes the input on. runInteractive calls started when the pod is up.
func (c *cli) runInteractive(ctx context.Context, launch *daemon.Launch, o runOptions, started func()) error {
	err := launch.Start(ctx)
	pod := launch.Pod()
	started()
	if err != nil {
		return err
	}
	c.showWarnings(pod)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var output sync.WaitGroup
	c.showOutput(ctx, pod, &output, cancel)
	shown := make(chan struct{})
	go func() {
		output.Wait()
		close(shown)
	}()
	left, err := c.typeUntil(ctx, shown, pod, o)
	if left {
		c.hint(leftText(pod.Plan.Name, o.remove))
		return err
	}
	return errors.Join(err, c.endInteractive(ctx, pod, o))
}

// leftText tells the person who has left a pod what to do with it.
func leftText(name string, remove bool) string {
	text := fmt.Sprintf("pod %q runs on; launcher attach %[1]s comes back, launcher stop %[1]s ends it", name)
	if remove {
		text += fmt.Sprintf("; the pod stays until launcher rm %s", name)
	}
	return text
}

// typeUntil passes the caller's input to the app until all of its output has been shown, ctx ends, or
// the detach keys are typed: then it returns true.
func (c *cli) typeUntil(ctx context.Context, shown <-chan struct{}, pod *pods.Pod,
	o runOptions,
) (left bool, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer null.Close()
	stdin, outputs := c.stdin, [2]*os.File{null, null}
	var detach <-chan struct{} // never ready
	if o.app.TTY && c.hasKeyboard() {
		k, err := c.openKeyboard(ctx, "leaves the pod running")
		if err != nil {
			return false, err
		}
		defer k.close()
		stdin, outputs[1], detach = k.read, os.Stderr, k.left.Done() // the terminal: the app gets its size
	}
	defer c.attachInput(ctx, pod, [3]*os.File{stdin, outputs[0], outputs[1]})()
	select {
	case <-shown:
	case <-ctx.Done():
	case <-detach:
		return true, nil
	}
	return false, nil
}

// attachInput attaches stdio to the pod's app until leave is called, which waits until it is detached.
func (c *cli) attachInput(ctx context.Context, pod *pods.Pod, stdio [3]*os.File) (leave func()) {
	attached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	signals, stop := callSignals()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// An app that has ended already needs no input.
		_, _ = c.daemon.Attach(attached, pod, daemon.AppNames(pod)[0], daemon.Caller{Stdio: stdio, Signals: signals})
	}()
	return func() {
		cancel()
		<-ended
		stop()
	}
}

// endInteractive stops a pod that is still alive, and returns its exit code as an error.
func (c *cli) endInteractive(ctx context.Context, pod *pods.Pod, o runOptions) error {
	lasting := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		if err := c.daemon.StopPod(lasting, pod, daemon.NoLimit); err != nil {
			return err
		}
	}
	letSignalsEnd()
	outcome, err := c.outcome(lasting, pod)
	if err := errors.Join(err, pod.StillConnected()); err != nil {
		return err
	}
	return c.ended(ctx, pod, outcome.Code, o.remove)
}
