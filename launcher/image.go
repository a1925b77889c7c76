package main

import "github.com/spf13/cobra"

// imageCommand is `image` with its subcommands.
func imageCommand(c *cli) *cobra.Command {
	return group("image", "manage images", imageImportCommand(c), imageListCommand(c), imageExportCommand(c),
		imageRmCommand(c), imagePruneCommand(c))
}
