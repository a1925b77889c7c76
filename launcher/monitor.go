package main

import (
	"context"

	"kurma.io/stager/launcher/pods"
)

// runMonitor is what `run --detach` leaves behind, see pods.RunDetached.
func runMonitor(ctx context.Context, _ *cli, args []string) error {
	if len(args) != 1 {
		return usageError{"monitor: run --detach starts this"}
	}
	return pods.RunDetached(ctx, args[0])
}
