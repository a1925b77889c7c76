package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// restartCommand is `restart`.
func restartCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "restart POD[/APP]…",
		Short: "stop pods or apps and start them again in the background",
		Long: `restart stops each pod, unless it has ended, starts it again as it was started, in the background, and
prints the new UUID. The new pod takes over the volumes and the apps' logs. Changes in the apps' roots are lost. A
pod that does not start again stays in ps --all, with its logs. So does a pod whose stop a signal interrupts:
restart waits for its end, which a second signal prevents.

POD/APP is one app of a live pod, which restart stops, unless the app has ended, and starts again at once, whatever
its restart policy says. The pod keeps its UUID, its other apps and the app's root.`,
		Example: `  launcher restart web
  launcher restart shop/db`,
		Args:              wants(1, -1, "POD[/APP]…"),
		ValidArgsFunction: c.completePodsAndApps,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.restart(cmd.Context(), args) },
	}
}

func (c *cli) restart(ctx context.Context, refs []string) error {
	var pods, apps []string
	for _, ref := range refs {
		if strings.Contains(ref, "/") {
			apps = append(apps, ref)
		} else {
			pods = append(pods, ref)
		}
	}
	errs := c.restartApps(ctx, apps)
	if len(pods) > 0 {
		errs = append(errs, c.restartPods(ctx, pods))
	}
	return errors.Join(errs...)
}

func (c *cli) restartApps(ctx context.Context, refs []string) (errs []error) {
	for _, ref := range refs {
		name, app, _ := strings.Cut(ref, "/")
		pod, err := c.daemon.FindPod(name)
		if err == nil {
			err = c.daemon.RestartApp(ctx, pod, app)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restart %s: %w", quoted(ref), err))
		}
	}
	return errs
}

func (c *cli) restartPods(ctx context.Context, refs []string) error {
	found, errs, err := c.daemon.FindPods(refs)
	if err != nil {
		return err
	}
	defer untilInterrupted(ctx)()
	for _, old := range found {
		pod, err := c.daemon.Restart(ctx, old)
		if pod != nil {
			c.showWarnings(pod)
			err = errors.Join(err, c.printStarted(pod))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restart pod %q: %w", old.Plan.Name, err))
		}
	}
	return errors.Join(errs...)
}
