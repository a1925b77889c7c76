package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/launcher/images"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// imageImportCommand is `image import FILE…`.
func imageImportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE…",
		Short: "import ACIs and print their IDs",
		Long: `import imports ACIs, plain or compressed with gzip, bzip2 or xz, and prints their IDs. The file
FILE.asc is the signature of FILE.`,
		Args: wants(1, -1, "FILE…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := c.images()
			if err != nil {
				return err
			}
			return c.importImages(cmd.Context(), store, args)
		},
	}
}

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
			err = c.printJSON(describeImage(store, image, ring))
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
	printed := int64(-1)
	return func(done, size int64) {
		percent := 100 * done / max(size, 1)
		if percent == printed {
			return
		}
		printed = percent
		fmt.Fprintf(c.stderr, "\r%s: %d %%", what, percent)
		if done >= size {
			fmt.Fprint(c.stderr, "\r\x1b[K")
		}
	}
}
