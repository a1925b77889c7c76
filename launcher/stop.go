package main

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// stopCommand is `stop`.
func stopCommand(c *cli) *cobra.Command {
	all, limit := false, noLimit
	cmd := &cobra.Command{
		Use:               "stop POD… | --all",
		Short:             "stop pods",
		Long:              "stop returns when the pods have ended. They stay in ps --all, with their logs, until rm or gc.",
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usageError{"stop: want a POD, or --all"}
			}
			return c.stop(cmd.Context(), args, limit)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "stop all pods")
	cmd.Flags().FuncP("time", "t", "kill a pod that has not ended after `SECONDS`; else the stager's grace period holds, and after 60 s Kurma's", func(text string) error {
		seconds, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return errors.New("want a number of seconds")
		}
		limit = time.Duration(seconds) * time.Second
		return nil
	})
	return cmd
}

// noLimit is stop's limit of pods that it does not kill.
const noLimit time.Duration = -1

// stop returns when the pods have ended; without refs all that are alive. It kills those that have not ended after limit. It stops them at the same
// time, and one that cannot be stopped prevents no other.
func (c *cli) stop(ctx context.Context, refs []string, limit time.Duration) error {
	store, err := c.pods()
	if err != nil {
		return err
	}
	found, errs, err := findAll(store, refs)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		errs, err = unstoppable(store)
	}
	if err != nil {
		return err
	}
	done := c.busy("stop pods")
	defer done()
	var stopping sync.WaitGroup
	stopped := make([]error, len(found))
	for i, pod := range found {
		stopping.Go(func() {
			if limit != noLimit {
				late := time.AfterFunc(limit, func() { store.Kill(pod.Plan.UUID) })
				defer late.Stop()
			}
			stopped[i] = store.Stop(ctx, pod)
		})
	}
	stopping.Wait()
	return errors.Join(append(errs, stopped...)...)
}

// unstoppable returns the errors of the damaged pods that may be alive: nobody knows how to stop them.
func unstoppable(store *pods.Store) ([]error, error) {
	all, err := store.List()
	var errs []error
	for _, pod := range all {
		if pod.Damage != nil && pod.Locked() {
			_, err := store.Find(pod.Plan.UUID)
			errs = append(errs, err)
		}
	}
	return errs, err
}

// findAll returns the pods that refs name, each once, and the errors of those that cannot be found; without
// refs it returns all pods that are alive.
func findAll(store *pods.Store, refs []string) (found []*pods.Pod, errs []error, err error) {
	if len(refs) == 0 {
		all, err := store.List()
		for _, pod := range all {
			if !pod.Ended() {
				found = append(found, pod)
			}
		}
		return found, nil, err
	}
	seen := make(map[string]bool)
	for _, ref := range refs {
		pod, err := store.Find(ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !seen[pod.Plan.UUID] {
			found = append(found, pod)
		}
		seen[pod.Plan.UUID] = true
	}
	return found, errs, nil
}
