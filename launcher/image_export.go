package main

import (
	"github.com/spf13/cobra"
)

// imageExportCommand is `image export IMAGE FILE`.
func imageExportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "export IMAGE FILE",
		Short: "write an image into a file",
		Long: `export writes the ACI that was imported, and its signature as FILE.asc, if the image is signed. The store does not
keep the file of an image that is not signed: it is built again from the image's manifest and files, and a
warning says so if its ID is another one. A FILE that exists is an error.`,
		Args:              wants(2, 2, "IMAGE FILE"),
		ValidArgsFunction: c.completeImages(1, false),
		RunE:              func(_ *cobra.Command, args []string) error { return c.exportImage(args[0], args[1]) },
	}
}

func (c *cli) exportImage(ref, path string) error {
	if path == "-" {
		return usageError{"image export: want a FILE, not -: the signature is written beside the file"}
	}
	same, err := c.daemon.ExportImage(ref, path)
	if err == nil && !same {
		c.warn(path + " is built again from the image's files, so its ID is another one")
	}
	return err
}
