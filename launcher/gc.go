package main

import (
	"context"
	"errors"
	"fmt"

	"kurma.io/stager/launcher/images"

	"github.com/spf13/cobra"
)

// collected is what `gc --json` prints.
type collected struct {
	Pods    []string `json:"pods"`    // UUIDs
	Imports int      `json:"imports"` // unfinished imports and removals of images
	// Networks are those whose plugin container was stopped because no pod uses it.
	Networks []string `json:"networks,omitempty"`
}

// gcCommand is `gc`.
func gcCommand(c *cli) *cobra.Command {
	dry := false
	cmd := &cobra.Command{
		Use:               "gc",
		Short:             "delete ended pods with their logs, and leftovers of interrupted commands",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dry {
				return c.wouldCollect()
			}
			return c.collect(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the pods that would be deleted and the networks whose plugin would be stopped, and change nothing")
	return cmd
}

// wouldCollect prints what gc would delete.
func (c *cli) wouldCollect() error {
	podStore, err := c.pods()
	if err != nil {
		return err
	}
	all, err := podStore.List()
	if err != nil {
		return err
	}
	imageStore, err := c.images()
	if err != nil {
		return err
	}
	imports, err := imageStore.Unfinished()
	if err != nil {
		return err
	}
	containers, err := c.containers()
	if err != nil {
		return err
	}
	done := []string{}
	kept := make(map[string]bool) // networks: gc first disconnects the pods that it deletes
	for _, pod := range all {
		if pod.Ended() && !pod.Locked() {
			done = append(done, pod.Plan.UUID)
			continue
		}
		for _, a := range pod.Plan.Networks {
			kept[a.Network] = true
		}
	}
	idle, err := containers.Idle(func(network string) bool { return kept[network] })
	if err != nil {
		return err
	}
	return c.printCollected(collected{done, imports, idle})
}

// collect deletes pods without a monitor and unfinished imports, and stops the plugin
// containers of networks that no pod uses.
func (c *cli) collect(ctx context.Context) error {
	podStore, err := c.pods()
	if err != nil {
		return err
	}
	imageStore, err := images.Open(c.config.ImagesDirectory)
	if err != nil {
		return err
	}
	told := c.busy("delete pods")
	defer told()
	done, podErr := podStore.Collect()
	idle, networkErr := c.collectNetworks(ctx, podStore)
	imports, imageErr := imageStore.Collect()
	told()
	return errors.Join(podErr, networkErr, imageErr, c.printCollected(collected{append([]string{}, done...), imports, idle}))
}

func (c *cli) printCollected(all collected) error {
	if c.json {
		return c.printJSON(all)
	}
	for _, name := range all.Networks {
		if err := c.line("network " + name); err != nil {
			return err
		}
	}
	for _, id := range all.Pods {
		if _, err := fmt.Fprintln(c.stdout, "pod", id); err != nil {
			return err
		}
	}
	if all.Imports == 0 {
		return nil
	}
	_, err := fmt.Fprintln(c.stdout, all.Imports, "unfinished imports")
	return err
}
