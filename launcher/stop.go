package main

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// stopCommand is `stop`.
func stopCommand(c *cli) *cobra.Command {
	all, limit := false, daemon.NoLimit
	cmd := &cobra.Command{
		Use:   "stop POD… | --all",
		Short: "stop pods",
		Long: "stop returns when the pods have ended. The pods stay in ps --all, with their logs and volumes, " +
			"until rm or gc.",
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usageError{"stop: want a POD, or --all"}
			}
			return c.stop(cmd.Context(), args, limit)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "stop all pods")
	cmd.Flags().FuncP("time", "t", "kill a pod that has not ended after `SECONDS`, at most 60, the default, or "+
		"more if its apps' grace period is longer; that period holds as well", func(text string) error {
		seconds, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return errors.New("want a number of seconds")
		}
		limit = time.Duration(seconds) * time.Second
		return nil
	})
	return cmd
}

// stop stops pods at the same time, without refs all that are alive; one that cannot be stopped prevents no other.
func (c *cli) stop(ctx context.Context, refs []string, limit time.Duration) error {
	found, errs, err := c.daemon.FindPods(refs)
	if err != nil {
		return err
	}
	defer c.busy("stop pods")()
	stopped := make([]error, len(found))
	var stopping sync.WaitGroup
	for i, pod := range found {
		stopping.Go(func() { stopped[i] = c.daemon.StopPod(ctx, pod, limit) })
	}
	stopping.Wait()
	return errors.Join(append(errs, stopped...)...)
}
