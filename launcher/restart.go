package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// restartCommand is `restart`.
func restartCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "restart POD…",
		Short: "stop pods and start them again in the background",
		Long: `restart stops each pod, unless it has ended, starts it again as it was started, in the background, and prints
its new UUID. What the pod wrote to its roots and empty volumes is lost. The old pod stays in ps --all with its logs.`,
		Args:              wants(1, -1, "POD…"),
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.restart(cmd.Context(), args) },
	}
}

func (c *cli) restart(ctx context.Context, refs []string) error {
	store, err := c.pods()
	if err != nil {
		return err
	}
	found, errs, err := findAll(store, refs)
	if err != nil {
		return err
	}
	for _, pod := range found {
		if err := c.restartPod(ctx, store, pod); err != nil {
			errs = append(errs, fmt.Errorf("restart pod %q: %w", pod.Plan.Name, err))
		}
	}
	return errors.Join(errs...)
}

// restartPod starts a pod again with the plan that it has. Its images cannot be removed
// meanwhile, and its stager must still be trusted. A pod that has ended, but could not be disconnected from
// its networks, is started again too, and the error returned.
func (c *cli) restartPod(ctx context.Context, store *pods.Store, old *pods.Pod) error {
	images, err := images.Open(c.config.ImagesDirectory)
	if err != nil {
		return err
	}
	release, err := images.Pin()
	if err != nil {
		return err
	}
	defer release()
	ring, err := c.config.keyring()
	if err != nil {
		return err
	}
	stager, err := images.Get(old.Plan.StagerImage)
	if err != nil {
		return err
	}
	if err := images.TrustStager(stager, ring); err != nil {
		return err
	}
	for _, layer := range old.Plan.Layers {
		if _, err := images.Get(layer.ID); err != nil {
			return err
		}
	}
	stopped := store.Stop(ctx, old)
	if stopped != nil && !errors.Is(stopped, pods.ErrConnected) {
		return stopped
	}
	return errors.Join(stopped, c.startAgain(ctx, store, old))
}

func (c *cli) startAgain(ctx context.Context, store *pods.Store, old *pods.Pod) error {
	pod, err := store.Create(ctx, old.Plan.Again())
	if err != nil {
		return err
	}
	if err := pod.Detach(ctx, c.monitor()); err != nil {
		return err
	}
	c.showWarnings(pod)
	return c.printStarted(pod)
}
