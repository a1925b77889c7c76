package main

import (
	"context"

	"kurma.io/stager/launcher/pods"
)

// runMonitor is the process that `run --detach` leaves running, see pods.RunDetached.
func runMonitor(ctx context.Context, _ *cli, args []string) error {
	if len(args) != 1 {
		return usageError{"monitor: only run --detach may start this"}
	}
	return pods.RunDetached(ctx, args[0])
}
