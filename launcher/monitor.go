package main

import (
	"github.com/spf13/cobra"
)

// monitorCommand is `monitor`, hidden: the process that `run --detach` leaves running.
func monitorCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:    "monitor DIR",
		Hidden: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{"monitor: only run --detach may start this"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.daemon.Monitor(cmd.Context(), args[0])
		},
	}
}
