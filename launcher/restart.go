package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"
)

// restartCommand is `restart`.
func restartCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "restart POD…",
		Short: "stop pods and start them again in the background",
		Long: `restart stops each pod, unless it has ended, starts it again as it was started, in the background, and
prints the new UUID. The new pod takes over the volumes and the apps' logs. Changes in the apps' roots are lost. A
pod that does not start again stays in ps --all, with its logs. So does a pod whose stop a signal interrupts:
restart waits for its end, which a second signal prevents.`,
		Args:              wants(1, -1, "POD…"),
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.restart(cmd.Context(), args) },
	}
}

func (c *cli) restart(ctx context.Context, refs []string) error {
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
