package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// waitCommand is `wait`.
func waitCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "wait POD…",
		Short: "wait until pods have ended, and print their exit codes",
		Long: `wait waits until each pod has ended and prints its exit code: the stager's, or if that is 0 the first of
an app that is not 0. For a code that is not known it prints ?, and fails. A pod with the exit policy "never"
ends when it is stopped.`,
		Args:              wants(1, -1, "POD…"),
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.wait(cmd.Context(), args) },
	}
}

func (c *cli) wait(ctx context.Context, refs []string) error {
	all, err := c.findEach(refs) // a name may mean another pod later
	if err != nil {
		return err
	}
	var unknown []error
	for _, pod := range all {
		outcome, err := c.outcome(ctx, pod)
		if err != nil {
			return err
		}
		if err := c.printOne(outcome, codeText(outcome.Code)); err != nil {
			return err
		}
		if outcome.Code == nil {
			unknown = append(unknown, unknownCode(pod))
		}
	}
	return errors.Join(unknown...)
}

// outcome waits until a pod has ended.
func (c *cli) outcome(ctx context.Context, pod *pods.Pod) (daemon.Outcome, error) {
	outcome, err := c.daemon.Wait(ctx, pod)
	if errors.Is(err, pods.ErrNotFound) {
		err = fmt.Errorf("pod %q was deleted before its exit code was read", pod.Plan.Name)
	}
	return outcome, err
}

// findEach finds every one of the named pods.
func (c *cli) findEach(refs []string) ([]*pods.Pod, error) {
	var all []*pods.Pod
	for _, ref := range refs {
		pod, err := c.daemon.FindPod(ref)
		if err != nil {
			return nil, err
		}
		all = append(all, pod)
	}
	return all, nil
}

// unknownCode is the error of a command that returns a pod's exit code.
func unknownCode(pod *pods.Pod) error {
	return fmt.Errorf("the exit code of pod %q is not known: the stager has not kept the apps' last states", pod.Plan.Name)
}
