package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// runCommand is `run`.
func runCommand(c *cli) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run POD.json | IMAGE [-- ARGS…]",
		Short: "start a pod",
		Long: `run starts the pod of a pod manifest, or a pod of one app from an image, and shows the output of its apps.
run ends when all apps have ended, with the first exit code that is not 0. With "--exit-policy never" the pod stays
until a signal stops it. SIGINT, SIGTERM, SIGHUP and SIGQUIT stop the pod.

With --detach, run prints the pod's UUID when all apps have been started, and leaves the pod running: the pod of an
image ends with its app, the pod of a manifest stays until it is stopped, unless --exit-policy says otherwise.

The arguments after -- follow those of the image.

The page docs/pods.md explains the pod manifest; the Debian package has it in /usr/share/doc/kurma-launcher.`,
		Annotations: map[string]string{exitStatusAnnotation: "The pod's: the first exit code of an app that is not 0; " +
			"130 after SIGINT; 1 if the pod does not start, 126 if an app's program is not executable, 127 if it is missing."},
		Example: `  launcher run --detach --name web --volume data=/srv/web example.com/web:1.0
  launcher run --publish 8080:80 docker://docker.io/library/nginx
  launcher run pod.json`,
		ValidArgsFunction: c.completeImages(1, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			return c.run(cmd.Context(), o)
		},
	}
	o.declare(cmd.Flags())
	return cmd
}

// run starts a pod. With --detach it prints the pod's UUID when it is up; if the UUID cannot be
// printed, the pod is deleted. Otherwise it shows the pod's output until it ends, see runHere.
func (c *cli) run(ctx context.Context, o runOptions) (err error) {
	if o.interactive() && !o.app.TTY {
		// The null device has no input: the app's stdin is at its end, as without --interactive.
		o.app.Stdin, o.app.StdinOnce = !isNull(c.stdin), true
	}
	if width, height, err := term.GetSize(int(c.stdin.Fd())); o.app.TTY && err == nil && width > 0 && height > 0 {
		o.app.TTYSize = fmt.Sprintf("%dx%d", width, height)
	}
	asked, err := c.asked(o)
	if err != nil {
		return err
	}
	// Before "start pod" is shown: an import reports its own progress. The pod names the source, as the image may be
	// removed before the pod is made.
	pulled := untilInterrupted(ctx)
	err = c.daemon.Obtain(ctx, asked)
	pulled()
	if err != nil {
		return err
	}
	if asked.Pull == daemon.PullAlways {
		asked.Pull = "" // not a second time
	}
	started := c.busy("start pod")
	defer started()
	// A write to a pipe without a reader must be an error, which stops the pod. With
	// SIGPIPE this process would end and the pod would not be stopped. The first write is that of
	// the warnings.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	defer signal.Stop(broken)
	launch, err := c.createPod(ctx, asked)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, launch.Close()) }()
	if o.detach {
		return c.runDetached(ctx, launch, started)
	}
	shown, err := launch.Pod().KeepLogs()
	if err != nil {
		return err
	}
	defer shown()
	if o.interactive() {
		return c.runInteractive(ctx, launch, o, started)
	}
	return c.runHere(ctx, launch, o, started)
}

// createPod makes a pod, and warns of what has no effect in it.
func (c *cli) createPod(ctx context.Context, asked daemon.PodOptions) (*daemon.Launch, error) {
	launch, warnings, err := c.daemon.Create(ctx, asked)
	c.warn(warnings...)
	if errors.Is(err, pods.ErrNameTaken) {
		err = fmt.Errorf("%w; choose another with --name", err)
	}
	return launch, err
}

func (c *cli) runDetached(ctx context.Context, launch *daemon.Launch, started func()) error {
	err := launch.Start(ctx)
	started()
	if err != nil {
		return err
	}
	if err := c.printStarted(launch.Pod()); err != nil {
		return errors.Join(err, c.daemon.RemovePod(context.WithoutCancel(ctx), launch.Pod(), true))
	}
	c.showWarnings(launch.Pod())
	return nil
}

// podStarted is what `run --json` prints.
type podStarted struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	PID  int    `json:"pid"` // the stager's
}

func (c *cli) printStarted(pod *pods.Pod) error {
	return c.printOne(podStarted{pod.Plan.UUID, pod.Plan.Name, pod.State.Stager.PID}, pod.Plan.UUID)
}
