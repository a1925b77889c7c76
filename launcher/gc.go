package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"kurma.io/stager/launcher/images"
)

// collected is what `gc --json` prints.
type collected struct {
	Pods    []string `json:"pods"`    // UUIDs
	Imports int      `json:"imports"` // unfinished imports and removals of images
}

// runGC is `gc`: it deletes pods without a monitor, and unfinished imports.
func runGC(_ context.Context, c *cli, args []string) error {
	rest, err := c.parse("gc", args, nil)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{"gc: unexpected arguments"}
	}
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
