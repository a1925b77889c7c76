package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/launcher/images"

	"golang.org/x/term"
)

// importImages prints the ID of each image that it imports.
func (c *cli) importImages(ctx context.Context, store *images.Store, files []string) error {
	ring, err := c.config.keyring()
	if err != nil {
		return err
	}
	for _, file := range files {
		image, err := store.Import(ctx, file, ring, c.progress(filepath.Base(file)))
		if err != nil {
			return err
		}
		if c.json {
			err = c.printJSON(describeImage(image))
		} else {
			_, err = fmt.Fprintln(c.stdout, image.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// progress reports on a terminal how much of a file is read; elsewhere it is nil.
func (c *cli) progress(what string) func(done, size int64) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	shown := int64(-1)
	return func(done, size int64) {
		percent := 100 * done / max(size, 1)
		if percent == shown {
			return
		}
		shown = percent
		fmt.Fprintf(c.stderr, "\r%s: %d %%", what, percent)
		if done >= size {
			fmt.Fprint(c.stderr, "\r\x1b[K")
		}
	}
}
