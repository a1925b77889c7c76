package main

import (
	"github.com/spf13/cobra"
)

// monitorCommand is `monitor`, hidden: the process that watches a pod in the background. `run --detach`,
// `run --interactive` and `restart` leave it running, and so do commands that start the plugin of a network.
func monitorCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:    "monitor DIR",
		Hidden: true,
		Args:   wants(1, 1, "the DIR of a pod; commands that leave a pod in the background start this"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.daemon.Monitor(cmd.Context(), args[0])
		},
	}
}
