package main

import (
	"context"
	"errors"
)

// runStop is `stop`: it returns when the pods have ended and are deleted.
func runStop(ctx context.Context, c *cli, args []string) error {
	refs, err := c.parse("stop", args, nil)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		return usageError{"stop: want a POD"}
	}
	store, err := c.pods()
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		pod, err := store.Find(ref)
		if err == nil {
			err = store.Stop(ctx, pod)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
