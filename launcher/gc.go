package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the pods that would be deleted, and delete nothing")
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
	done := []string{}
	for _, pod := range all {
		if pod.Ended() && !pod.Locked() {
			done = append(done, pod.Plan.UUID)
		}
	}
	if c.json {
		return c.printJSON(collected{Pods: done, Imports: imports})
	}
	return printCollected(c.stdout, done, imports)
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
	return errors.Join(podErr, networkErr, imageErr, c.printAllCollected(collected{append([]string{}, done...), imports, idle}))
}

func (c *cli) printAllCollected(all collected) error {
	if c.json {
		return c.printJSON(all)
	}
	for _, name := range all.Networks {
		if _, err := fmt.Fprintln(c.stdout, "network", name); err != nil {
			return err
		}
	}
	return printCollected(c.stdout, all.Pods, all.Imports)
}

func printCollected(w io.Writer, done []string, imports int) error {
	for _, id := range done {
		if _, err := fmt.Fprintln(w, "pod", id); err != nil {
			return err
		}
	}
	if imports == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, imports, "unfinished imports")
	return err
}
