package main

import (
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
}

// gcCommand is `gc`.
func gcCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "gc",
		Short:             "delete ended pods with their logs, and leftovers of interrupted commands",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return c.collect() },
	}
}

// collect deletes pods without a monitor, and unfinished imports.
func (c *cli) collect() error {
	podStore, err := c.pods()
	if err != nil {
		return err
	}
	imageStore, err := images.Open(c.config.ImagesDirectory)
	if err != nil {
		return err
	}
	done, podErr := podStore.Collect()
	imports, imageErr := imageStore.Collect()
	if err := errors.Join(podErr, imageErr); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(collected{append([]string{}, done...), imports})
	}
	return printCollected(c.stdout, done, imports)
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
