package main

import (
	"context"
	"errors"
	"fmt"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// gcCommand is `gc`.
func gcCommand(c *cli) *cobra.Command {
	dry := false
	cmd := &cobra.Command{
		Use:               "gc",
		Short:             "delete ended pods with their logs and volumes, and leftovers of interrupted commands",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.collect(cmd.Context(), dry) },
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false,
		"print the pods that would be deleted and the networks with a plugin that would be stopped, and change nothing")
	return cmd
}

// collect deletes what gc deletes, or with dry only prints it.
func (c *cli) collect(ctx context.Context, dry bool) error {
	if dry {
		all, err := c.daemon.WouldCollect(ctx)
		if err != nil {
			return err
		}
		return c.printCollected(all)
	}
	told := c.busy("delete pods")
	all, err := c.daemon.Collect(ctx)
	told()
	return errors.Join(err, c.printCollected(all))
}

func (c *cli) printCollected(all daemon.Collected) error {
	if c.json {
		return c.printJSON(all)
	}
	var lines []string
	for _, name := range all.Networks {
		lines = append(lines, "network "+name)
	}
	for _, id := range all.Pods {
		lines = append(lines, "pod "+id)
	}
	if all.Imports > 0 {
		lines = append(lines, fmt.Sprint(all.Imports, " unfinished imports"))
	}
	if all.Layers > 0 {
		lines = append(lines, fmt.Sprint(all.Layers, " layers that no image needs"))
	}
	for _, line := range lines {
		if err := c.line(line); err != nil {
			return err
		}
	}
	return nil
}
