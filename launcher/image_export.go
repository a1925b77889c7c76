package main

import (
	"context"
	"fmt"
	"strings"

	"kurma.io/stager/launcher/images"

	"github.com/spf13/cobra"
)

// imageExportCommand is `image export IMAGE FILE`.
func imageExportCommand(c *cli) *cobra.Command {
	as := string(images.NotCompressed)
	cmd := &cobra.Command{
		Use:   "export IMAGE FILE",
		Short: "write an image into a file",
		Long: `export writes the ACI that was imported, and its signature as FILE.asc, if the image is signed. The store
does not keep the file of an unsigned image: export rebuilds the ACI from the image's manifest and files, and prints the
ID of the file if it is not the image's. A FILE that exists is an error.

FILE has the files of all images that the image depends on, such as its layers, and runs anywhere. Only the images
that a signed image depends on, or images with a pathWhitelist, are written beside it, as FILE.1, FILE.2 and so on.
A message names these files.`,
		Args:              wants(2, 2, "IMAGE FILE"),
		ValidArgsFunction: c.completeImages(1, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.exportImage(cmd.Context(), args[0], args[1], images.Compression(as))
		},
	}
	all := images.Compressions()
	cmd.Flags().Func("compress", "compress a rebuilt ACI: `"+strings.Join(all, "|")+"`; without it none, the fastest",
		oneOf(&as, all...))
	return cmd
}

func (c *cli) exportImage(ctx context.Context, ref, path string, as images.Compression) error {
	if path == "-" {
		return usageError{"image export: want a FILE, not -: the signature is written beside the file"}
	}
	done, err := c.daemon.ExportImage(ctx, ref, path, as)
	if err != nil {
		return err
	}
	if done.Merged > 0 {
		c.say(fmt.Sprintf("%s includes the files of the image's dependencies (%d)", path, done.Merged))
	}
	if len(done.Beside) > 0 {
		c.say(fmt.Sprintf("import %s with %s, because the image depends on them", strings.Join(done.Beside, " "), path))
	}
	for _, file := range done.Others {
		c.warn(file.File + " is rebuilt from the image's files, with the ID " + file.ID +
			"; a manifest for other machines names this ID, or the image's name")
	}
	return nil
}
